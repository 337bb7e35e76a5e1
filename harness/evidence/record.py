"""The run record as it happens: each change is on disk, whole, before the next thing starts."""

from __future__ import annotations

import os
import secrets
import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from harness.evidence.files import explain, replace_link, replace_text
from harness.evidence.model import Failure, Resources, Run, Rung, Status

# Kept free in the run folder until the end, so that a run that filled the disk can still say so.
# A record with seven rungs and a hundred versions is about 12 KB.
RESERVE_BYTES = 128 * 1024


def _now() -> datetime:
    return datetime.now(UTC)


def _iso(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def new_id(moment: datetime | None = None) -> str:
    """A run's name: sortable by time, to the millisecond; the tail parts runs that start in the same one.

    All have the same length: a forked process shows another run's in the same room (harness/warm/title.py).
    """
    moment = moment or _now()
    return f"{moment:%Y%m%d-%H%M%S}-{moment.microsecond // 1000:03d}-{secrets.token_hex(2)}"


class RunRecord:
    """One run's folder and its ``run.json``. Safe to call from several threads of one process."""

    def __init__(self, folder: Path, run: Run) -> None:
        """Use :meth:`create`; this takes a folder that exists."""
        self.folder = folder
        self._run = run
        self._lock = threading.RLock()
        self._clock = time.monotonic()
        self._rung_clock: dict[str, float] = {}
        self._resources: Callable[[], Resources] | None = None

    @classmethod
    def create(cls, runs: Path, *, profile: str, command: Sequence[str], run_id: str | None = None) -> Self:
        """Make ``runs/<id>/`` with its first ``run.json``, and point ``runs/latest`` at it.

        ``run_id``: a name that :func:`new_id` gave to who must know it before the run begins.

        Raises :class:`DiskFullError` when there is no space, :class:`RecordError` when the folder
        cannot be written for another reason. Nothing is left behind then.
        """
        started = _now()
        name = run_id or new_id(started)
        folder = runs / name
        had_runs = runs.is_dir()
        run = Run(id=name, profile=profile, command=list(command), started=_iso(started), pid=os.getpid())
        try:
            record = cls(folder, run)
            record._lay_out()
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            if not had_runs and runs.is_dir() and not any(runs.iterdir()):
                runs.rmdir()
            raise
        return record

    def _lay_out(self) -> None:
        try:
            self.folder.mkdir(parents=True)
            self._reserve.write_bytes(os.urandom(RESERVE_BYTES))
        except OSError as error:
            raise explain(error, self.folder, what="make the run folder") from error
        self._write()
        replace_link(self.folder.parent / "latest", self.folder.name, what="set the link to the latest run")

    @property
    def id(self) -> str:
        """The run's name, which every process of the run carries in ``VERLOCK_RUN_ID``."""
        return self._run.id

    @property
    def run(self) -> Run:
        """The record as it is on disk now."""
        with self._lock:
            return self._run

    @property
    def _reserve(self) -> Path:
        return self.folder / ".reserve"

    def environment(self) -> dict[str, str]:
        """Return the variables that tie a process to this run: its id, events file and metrics file."""
        folder = self.folder.absolute()
        return {
            "VERLOCK_RUN_ID": self.id,
            "VERLOCK_EVENTS": str(folder / "events.jsonl"),
            "VERL_FILE_LOGGER_PATH": str(folder / "metrics.jsonl"),
        }

    def watch(self, resources: Callable[[], Resources]) -> None:
        """Take the resources from here at each write, such as ``record.watch(sampler.resources)``."""
        self._resources = resources

    def rung_started(self, name: str) -> None:
        """Add the rung; on disk it reads ``interrupted`` until it ends."""
        with self._lock:
            self._rung_clock[name] = time.monotonic()
            self._change(rungs=[*(r for r in self._run.rungs if r.name != name), Rung(name=name)])

    def rung_passed(
        self, name: str, verified: str, seconds: float | None = None, details: Mapping[str, Any] | None = None
    ) -> None:
        """End a rung well. ``verified`` is its one line; ``seconds`` is measured here when not given."""
        self._end_rung(
            Rung(
                name=name,
                status="passed",
                seconds=self._took(name, seconds),
                verified=verified,
                details=dict(details or {}),
            )
        )

    def rung_failed(
        self,
        name: str,
        failure: Failure,
        seconds: float | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        """End a rung badly; the failure is the run's failure, because the climb stops here."""
        self._reserve.unlink(missing_ok=True)
        self._end_rung(
            Rung(name=name, status="failed", seconds=self._took(name, seconds), details=dict(details or {})),
            failure=failure,
        )

    def update(self, **fields: Any) -> None:
        """Replace top-level fields, such as ``settings``, ``versions``, ``fingerprint``, ``resources``."""
        with self._lock:
            self._change(**fields)

    def finish(self, status: Status, exit_code: int) -> None:
        """Write the end. Space for it was kept, so this works on a disk that the run filled."""
        self._reserve.unlink(missing_ok=True)
        with self._lock:
            self._change(status=status, exit_code=exit_code, ended=_iso(_now()))

    def _took(self, name: str, seconds: float | None) -> float:
        began = self._rung_clock.get(name, self._clock)
        return round(time.monotonic() - began if seconds is None else seconds, 3)

    def _end_rung(self, rung: Rung, **fields: Any) -> None:
        with self._lock:
            rungs = self._run.rungs
            known = any(r.name == rung.name for r in rungs)
            self._change(
                rungs=[rung if r.name == rung.name else r for r in rungs] if known else [*rungs, rung],
                **fields,
            )

    def _change(self, **fields: Any) -> None:
        """Keep the change in memory even when it cannot be written: the next write carries it."""
        seconds = round(time.monotonic() - self._clock, 3)
        if self._resources is not None:
            fields.setdefault("resources", self._resources())
        self._run = Run.model_validate({**dict(self._run), "seconds": seconds, **fields})
        self._write()

    def _write(self) -> None:
        replace_text(self.folder / "run.json", self._run.json_text(), what="write the run record")
