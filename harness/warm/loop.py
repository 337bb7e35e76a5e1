"""The loop of a watch: a save, a climb in fresh children, a verdict.

A save during a climb ends that climb, and the next verdict answers both saves: what it would have said is
about code that is gone.
"""

from __future__ import annotations

import json
import queue
import subprocess
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.console import Output
from harness.errors import EnvironmentDiffersError
from harness.evidence import tether
from harness.evidence.abandoned import sweep_ray_folders
from harness.evidence.model import Failure, load
from harness.evidence.processes import sweep
from harness.evidence.record import new_id
from harness.warm import standin, wire
from harness.warm.broken import failure_of
from harness.warm.changes import Saved, Watched
from harness.warm.kept import Base, Generation, WarmRay
from harness.warm.plan import Plan
from harness.warm.told import Cluster, Told
from harness.warm.verdict import Verdict, of_run

_NOTICE_SECONDS = 1.0
# Importing verl takes half a second; the first time, with all that it imports, 10, and from a slow disk 60.
IMPORT_SECONDS = 180.0
# A save while verl is imported waits this long for it: code that hangs would never come to an end.
AFTER_SAVE_SECONDS, FIRST_AFTER_SAVE_SECONDS = 5.0, 60.0


@dataclass(frozen=True, kw_only=True)
class Asked:
    """``words``: the climb's own, without rungs and places. ``ray``: its CPUs and GPUs, none: not kept."""

    python: Path
    environ: Mapping[str, str]
    words: tuple[str, ...]
    source: Path | None
    ray: tuple[int, int] | None
    reason: str | None = None
    """Why nothing can be forked, whatever is installed."""


@dataclass(frozen=True, kw_only=True)
class _Ended:
    climb: _Climb
    document: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class _Imported:
    base: Base
    generation: Generation


class _Climb:
    """A climb that is under way."""

    def __init__(
        self, command: list[str], environ: Mapping[str, str], run_id: str, into: queue.Queue[Any]
    ) -> None:
        self.run_id = run_id
        self.process = subprocess.Popen(
            tether.tied(*command, python=command[0]),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            env=dict(environ),
            start_new_session=True,
        )
        threading.Thread(target=self._wait, args=(into,), daemon=True).start()

    def _wait(self, into: queue.Queue[Any]) -> None:
        text = self.process.stdout.read() if self.process.stdout else ""
        self.process.wait()
        try:
            document = dict(json.loads(text))
        except ValueError:  # it was killed
            document = {}
        into.put(_Ended(climb=self, document=document))

    def cancel(self) -> None:
        """End it and all of its run; its record stays as it is on disk: interrupted."""
        self.process.kill()
        self.process.wait()
        sweep(self.run_id, grace=0.2)
        sweep_ray_folders()


class Loop:
    """Holds what is warm; a context manager that ends all of it."""

    def __init__(self, asked: Asked, plan: Plan, watched: Watched, output: Output, folder: Path) -> None:
        """``folder`` takes the watch's own files, and is removed by who made it."""
        self._asked, self._plan, self._watched = asked, plan, watched
        self._output, self._folder = output, folder
        self.events: queue.Queue[Any] = queue.Queue()
        self._base: Base | None = None if asked.reason else Base(asked.python, asked.environ, folder)
        reason = asked.reason or (self._base.problem if self._base else None)
        if reason:
            self._output.line(f"each run starts normally, not forked: {reason}")
            self._base = None
        self._generation: Generation | None = None
        self._ray: WarmRay | None = None
        self._climb: _Climb | None = None
        self._number = 0

    def __enter__(self) -> Loop:
        """All is started with the first run."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the climb, Ray and the base: no process and no folder stays."""
        if self._climb is not None:
            self._climb.cancel()
        if self._ray is not None:
            self._ray.close()
        if self._base is not None:
            self._base.close()

    def forever(self) -> None:
        """Verdict after verdict, until Ctrl-C."""
        saved: Saved | None = None
        while True:
            again = self._once(saved)
            if again is None and not self._plan.goes_on:
                self._output.line(f"watching; the next save reruns {self._plan.told()}")
                again = self._saved()
            saved = again or saved

    def _saved(self) -> Saved:
        while True:
            event = self.events.get()
            if isinstance(event, Saved):
                return event

    def _once(self, saved: Saved | None) -> Saved | None:
        """One climb to its verdict; or the saves that came before there was one."""
        began = saved.when if saved else time.monotonic()
        changed = sorted(saved.paths) if saved else []
        anew, later = self._renew(changed)
        generation = self._generation
        if later is not None:  # saved while verl was imported
            return _both(saved, later)
        if generation is not None and generation.error:
            failure, code = failure_of(generation)
            self._show(began, changed, anew, rung=None, code=code, failure=failure)
            self._plan.broken()
            return None
        cluster = self._ray.cluster() if self._ray and self._plan.trains else None
        self._climb = climb = self._start(generation, cluster)
        event = self._outcome(climb)
        if isinstance(event, _Ended):
            self._judge(event, began, changed, anew)
        else:
            self._output.line("  saved again: this run is ended, and begun anew")
            climb.cancel()
        self._climb = None
        if self._ray is not None and cluster is not None:
            self._ray.close()
            self._ray = None
        self._fresh_ray()
        if isinstance(event, _Ended):
            return None
        return _both(saved, event)

    def _outcome(self, climb: _Climb) -> _Ended | Saved:
        """What comes first: the climb's end, or the next save."""
        while True:
            event = self.events.get()
            if isinstance(event, Saved):
                return event
            if isinstance(event, _Ended) and event.climb is climb:
                break
        if event.document.get("error", {}).get("exit_code") == EnvironmentDiffersError.exit_code:
            # Saved while the run checked itself, and the notice is still on its way: no verdict on either.
            with suppress(queue.Empty):
                later = self.events.get(timeout=_NOTICE_SECONDS)
                return later if isinstance(later, Saved) else event
        return event

    def _renew(self, changed: list[Path]) -> tuple[bool, Saved | None]:
        """A new generation where code changed, or where none works; and what was saved meanwhile."""
        if self._base is None:
            return True, None
        if not self._base.alive:  # killed, by whomever: the imports are made again
            self._restart()
        current = self._generation
        if current is not None and not current.error and not self._watched.code(changed):
            return False, None
        return True, self._import(self._base)

    def _restart(self) -> None:
        if self._base is not None:
            self._base.close()
        self._base, self._generation = Base(self._asked.python, self._asked.environ, self._folder), None

    def _import(self, base: Base) -> Saved | None:
        """Import verl as it is now. Code that comes to no end is ended: by a save, or at the deadline."""

        def work() -> None:
            self.events.put(_Imported(base=base, generation=base.generation()))

        threading.Thread(target=work, daemon=True).start()
        patience = FIRST_AFTER_SAVE_SECONDS if self._generation is None else AFTER_SAVE_SECONDS
        deadline, saved = time.monotonic() + IMPORT_SECONDS, None
        while True:
            try:
                event = self.events.get(timeout=max(deadline - time.monotonic(), 0.0))
            except queue.Empty:
                break
            if isinstance(event, _Imported) and event.base is base:
                self._generation = event.generation
                return saved
            if isinstance(event, Saved):
                saved = _both(saved, event)
                deadline = min(deadline, time.monotonic() + patience)
        self._output.line("  importing verl did not come to an end: it is ended")
        self._restart()
        if saved is None:
            told = f"TimeoutError: importing verl did not come to an end within {IMPORT_SECONDS:g} s"
            self._generation = Generation(pid=0, error=told)
        return saved

    def _start(self, generation: Generation | None, cluster: Cluster | None) -> _Climb:
        asked, run_id = self._asked, new_id()
        words = ["-P", "-m", "harness", "climb", "--json", *self._plan.words(), *asked.words]
        if self._base is None or generation is None:
            return _Climb([str(asked.python), *words], asked.environ, run_id, self.events)
        told = Told(
            run_id=run_id, server=generation.pid, known=str(self._folder / "known.json"), cluster=cluster
        )
        environ = {**asked.environ, wire.ADDRESS_VARIABLE: self._base.runs, **told.variables()}
        return _Climb([str(asked.python), str(standin.__file__), *words], environ, run_id, self.events)

    def _fresh_ray(self) -> None:
        """Have a Ray that no run has used, where the next climb will want one."""
        if self._base is None or self._asked.ray is None or self._ray is not None or not self._plan.trains:
            return
        cpus, gpus = self._asked.ray
        self._ray = WarmRay(self._asked.python, self._asked.environ, self._base, cpus=cpus, gpus=gpus)

    def _judge(self, ended: _Ended, began: float, changed: list[Path], anew: bool) -> None:
        """The verdict of a climb that came to its end."""
        document = ended.document
        error = document.get("error", {})
        folder = document.get("run") or error.get("run")
        rung = verified = failure = None
        if folder:
            run = load(Path(folder))
            rung, verified = of_run(run)
            failure = run.failure
        elif error:
            failure = Failure(
                failure_class=error["class"],
                signature=error["type"],
                cause="\n".join(str(problem["what"]) for problem in error["problems"]),
                scope=error["scope"],
            )
        code = int(error.get("exit_code", ended.climb.process.returncode))
        self._plan.ended(rung, passed=code == 0)
        self._show(began, changed, anew, rung=rung, code=code, failure=failure, verified=verified, run=folder)

    def _show(self, began: float, changed: list[Path], anew: bool, **known: Any) -> None:
        self._number += 1
        root = self._asked.source or Path.cwd()
        code = known.pop("code")
        Verdict(
            number=self._number,
            status="passed" if code == 0 else "failed",
            seconds=round(time.monotonic() - began, 2),
            changed=[str(p.relative_to(root)) if p.is_relative_to(root) else str(p) for p in changed],
            anew=anew,
            exit_code=code,
            **known,
        ).show(self._output)


def _both(saved: Saved | None, later: Saved) -> Saved:
    return later if saved is None else saved.plus(later)
