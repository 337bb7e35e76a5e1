"""A watch's warm processes, seen from the watch: the base with its generations, and the Ray that waits.

Standard library and psutil only: the watch itself runs outside of the environment.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.evidence import tether
from harness.evidence.abandoned import RAY_FOLDER
from harness.evidence.processes import RUN_VARIABLE, sweep
from harness.evidence.record import new_id
from harness.warm import standin, wire
from harness.warm.title import PADDING
from harness.warm.told import Cluster

_END_SECONDS = 5.0


@dataclass(frozen=True, kw_only=True)
class Generation:
    """A fork server with the code as it was; or, with an ``error``, what importing that code raised."""

    pid: int
    seconds: float = 0.0
    error: str | None = None
    stack: str = ""


def spawn(
    command: Sequence[str], environ: Mapping[str, str], *, log: Path, cwd: Path | None = None
) -> subprocess.Popen[str]:
    """Start a process that ends with this one, talks through pipes, and complains to ``log``."""
    with log.open("ab") as sink:
        return subprocess.Popen(
            tether.tied(*command, python=command[0]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=sink,
            text=True,
            env=dict(environ),
            cwd=cwd,
            start_new_session=True,
        )


def end(process: subprocess.Popen[str]) -> None:
    """Kill it; its children follow."""
    with suppress(ProcessLookupError):
        process.kill()
    with suppress(subprocess.TimeoutExpired):
        process.wait(timeout=_END_SECONDS)
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(OSError):
                pipe.close()


class Base:
    """The base process."""

    def __init__(self, python: Path, environ: Mapping[str, str], folder: Path) -> None:
        """``environ`` is a trainer's, with a run id of the watch's own."""
        name = f"verlock-{os.getpid()}-{secrets.token_hex(8)}"
        self.services, self.runs = f"{name}-base", name
        self._process = spawn(
            [str(python), "-P", "-m", "harness.warm.base", self.services, self.runs, PADDING],
            {**environ, "SPT_NOENV": "1"},  # as in harness/warm/fork.py
            log=folder / "base.log",
            cwd=folder,
        )
        self.problem: str | None = self._answer().get("error")
        """Why nothing can be forked here."""

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self._process.poll() is None

    def generation(self) -> Generation:
        """End the last generation with all that was forked from it, and import the code as it is now."""
        assert self._process.stdin is not None  # noqa: S101 - for mypy: it was made with a pipe
        with suppress(BrokenPipeError):
            self._process.stdin.write("generation\n")
            self._process.stdin.flush()
        answer = self._answer()
        known = {key: answer[key] for key in ("pid", "seconds", "error", "stack") if key in answer}
        return Generation(**{"pid": 0, **known})

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None  # noqa: S101 - as above
        line = self._process.stdout.readline()
        return dict(json.loads(line)) if line else {"error": "the process that keeps the imports has ended"}

    def close(self) -> None:
        """End it, and all generations."""
        end(self._process)


class WarmRay:
    """A Ray that no run has used yet; it starts in the background."""

    def __init__(self, python: Path, environ: Mapping[str, str], base: Base, *, cpus: int, gpus: int) -> None:
        """``environ`` as the base's. Ray's services are forked from the base, its workers by generations."""
        self._id = new_id()
        self._folder = Path(tempfile.mkdtemp(prefix=f"{RAY_FOLDER}{os.getpid()}-"))
        self._cpus, self._gpus = cpus, gpus
        self._process = spawn(
            [
                *(str(python), str(standin.__file__), standin.SCRIPT),
                *(str(Path(__file__).with_name("cluster.py")), str(self._folder), str(cpus), str(gpus)),
            ],
            {
                **environ,
                RUN_VARIABLE: self._id,
                wire.ADDRESS_VARIABLE: base.services,
                wire.WORKERS_VARIABLE: base.runs,
            },
            log=self._folder / "start.log",
            cwd=self._folder,
        )

    def cluster(self) -> Cluster | None:
        """Wait until it is up; none where it could not start, and the trainer starts its own."""
        assert self._process.stdout is not None  # noqa: S101 - for mypy: it was made with a pipe
        line = self._process.stdout.readline()
        if not line:
            return None
        address = str(json.loads(line)["address"])
        return Cluster(address=address, folder=str(self._folder), cpus=self._cpus, gpus=self._gpus)

    def close(self) -> None:
        """End all of it, and remove its folder."""
        end(self._process)
        sweep(self._id, grace=0.5)
        shutil.rmtree(self._folder, ignore_errors=True)
