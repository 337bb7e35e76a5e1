"""The memory of each of a run's processes at one moment: what is its own, cheap enough for every step."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import psutil

from harness.evidence.processes import Members, name_of

_LINUX = sys.platform == "linux"
_SMALL = 16 * 2**20
"""Shells and stand-ins, two dozen a run; what leaks does not stay below it."""


class Memory:
    """Reads a run's processes again and again; each keeps the best name that it was seen with."""

    def __init__(self, run_id: str) -> None:
        """Nothing is read yet."""
        self._members = Members(run_id)
        self._names: dict[int, str] = {}

    def read(self) -> Mapping[str, int]:
        """Bytes by ``title (pid N)``.

        On Linux anonymous pages alone: libraries are files, and Ray's object store is shared. A page that
        a forked worker still shares with its parent counts in both; that share does not grow.
        """
        found = {}
        for process in self._members.find():
            name = name_of(process)
            known = self._names.get(process.pid, "?")
            if name != "?" and (known == "?" or "IDLE" not in name):
                self._names[process.pid] = known = name
            used = _own(process)
            if used >= _SMALL:
                found[f"{known} (pid {process.pid})"] = used
        return found


def _own(process: psutil.Process) -> int:
    """0 for a process that has gone."""
    try:
        if _LINUX:
            return anonymous(Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8"))
        return int(process.memory_info().rss)
    except (psutil.Error, OSError):
        return 0


def anonymous(status: str) -> int:
    """The bytes of the ``RssAnon:`` line of ``/proc/PID/status``; 0 if there is none."""
    for line in status.splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return 0
