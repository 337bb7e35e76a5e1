"""The memory of each of a run's processes at one moment: what is its own, cheap enough for every step."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import psutil

from harness.evidence.processes import Members, name_of

_LINUX = sys.platform == "linux"
_SMALL = 16 * 2**20
"""Shells and stand-ins, two dozen a run; what leaks does not stay below it."""
Measure = Literal["private", "resident"]
MEASURE: Measure = "private" if _LINUX else "resident"


class Memory:
    """Reads a run's processes again and again; each keeps the best name that it was seen with."""

    def __init__(self, run_id: str) -> None:
        """Nothing is read yet."""
        self._members = Members(run_id)
        self._names: dict[int, str] = {}
        self._shared: dict[psutil.Process, int] = {}

    def read(self) -> Mapping[str, int]:
        """Bytes by ``title (pid N)``.

        On Linux anonymous pages alone (libraries are files, and Ray's object store is shared memory), without
        those that a forked process shared with its parent when it was first read. Telling these apart walks
        the page tables (30 ms for 400 MiB, measured), so it is done once for each process: of forked workers
        the parent's 390 MiB would else count in each. Elsewhere nothing forks: all that is resident.
        """
        found = {}
        for process in self._members.find():
            name = name_of(process)
            known = self._names.get(process.pid, "?")
            if name != "?" and (known == "?" or "IDLE" not in name):
                self._names[process.pid] = known = name
            used = _taken(process)
            if used >= _SMALL:
                if process not in self._shared:
                    self._shared[process] = _shared(process, used)
                found[f"{known} (pid {process.pid})"] = max(0, used - self._shared[process])
        return found


def _taken(process: psutil.Process) -> int:
    """0 for a process that has gone."""
    try:
        if _LINUX:
            return anonymous(Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8"))
        return int(process.memory_info().rss)
    except (psutil.Error, OSError):
        return 0


def _shared(process: psutil.Process, used: int) -> int:
    """How much of its anonymous memory others have too; 0 where that cannot be read."""
    try:
        rollup = Path(f"/proc/{process.pid}/smaps_rollup").read_text(encoding="utf-8") if _LINUX else ""
    except OSError:
        return 0
    private = _kilobytes(rollup, "Private_Dirty:")
    return 0 if private is None else max(0, used - private)


def anonymous(status: str) -> int:
    """The bytes of the ``RssAnon:`` line of ``/proc/PID/status``; 0 if there is none."""
    return _kilobytes(status, "RssAnon:") or 0


def _kilobytes(text: str, name: str) -> int | None:
    """The line's number, which the kernel gives in kB, in bytes."""
    line = next((line for line in text.splitlines() if line.startswith(name)), None)
    return None if line is None else int(line.split()[1]) * 1024
