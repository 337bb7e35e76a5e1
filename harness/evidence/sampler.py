"""How much memory all processes of a run use together, watched from a thread.

On Linux the sum is of PSS (``/proc/PID/smaps_rollup``): pages that several processes share count
once in all. Reading it walks the page tables (about 10 ms for a process of 1 GB), so it is rationed
to a share of one core. Between the readings the cheap sum of RSS is watched, and a new high of it
brings a reading at once: peaks are short.
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from typing import Self

import psutil

from harness.evidence.model import Resources, Seen
from harness.evidence.processes import Members, name_of, parent_of

_TICK_SECONDS = 1.0
# Shares of one core: together below 3 %.
_READING_BUDGET, _LISTING_BUDGET = 0.018, 0.009
_NEW_HIGH = 1.05
_LINUX = sys.platform == "linux"


class Sampler:
    """Start it for a run, ask it at any time, stop it at the end; also a context manager."""

    def __init__(self, run_id: str) -> None:
        """Watch this process with its descendants, and all that carry ``run_id``."""
        self._members = Members(run_id, with_self=True)
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="verlock-sampler", daemon=True)
        self._peak = 0
        self._by_title: dict[str, int] = {}
        self._seen: dict[int, str] = {}
        self._parents: dict[int, int] = {}
        self._samples = 0
        self._cpu = 0.0

    def __enter__(self) -> Self:
        """Start watching."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop watching."""
        self.stop()

    def start(self) -> Self:
        """Start watching; returns itself."""
        return self.__enter__()

    def stop(self) -> Resources:
        """Stop after the reading that may be under way, and return what was seen."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=10)
        return self.resources()

    def resources(self) -> Resources:
        """Return the peaks and the processes seen so far, for the run record.

        Names that processes only had before they took their own (Ray's ``default_worker.py``) are left out.
        """
        with self._lock:
            names = set(self._seen.values())
            return Resources(
                peak_pss_bytes=self._peak,
                measure="pss" if _LINUX else "uss",
                peak_by_title={name: used for name, used in sorted(self._by_title.items()) if name in names},
                processes=[
                    Seen(pid=pid, title=name, parent=self._parents.get(pid, 0))
                    for pid, name in sorted(self._seen.items())
                ],
                samples=self._samples,
                sampler_cpu_seconds=round(self._cpu, 3),
            )

    def _loop(self) -> None:
        began, next_reading, highest_rss = time.thread_time(), 0.0, 0
        while not self._stop.is_set():
            tick = time.thread_time()
            processes = self._members.find()
            self._note(processes)
            rss = sum(_rss(process) for process in processes)
            listing = time.thread_time() - tick
            now = time.monotonic()
            if now >= next_reading or rss > highest_rss * _NEW_HIGH:
                next_reading = now + self._read(processes) / _READING_BUDGET
            highest_rss = max(highest_rss, rss)
            with self._lock:
                self._cpu = time.thread_time() - began
            self._stop.wait(max(_TICK_SECONDS, listing / _LISTING_BUDGET))

    def _note(self, processes: list[psutil.Process]) -> None:
        with self._lock:
            for process in processes:
                name = name_of(process)
                # A Ray worker is IDLE before and after its work: keep the name that says more.
                if name != "?" and not (process.pid in self._seen and "IDLE" in name):
                    self._seen[process.pid] = name
                if process.pid not in self._parents:
                    self._parents[process.pid] = parent_of(process)

    def _read(self, processes: list[psutil.Process]) -> float:
        """Take one reading; returns the CPU seconds that it cost."""
        began = time.thread_time()
        total, by_title = 0, dict[str, int]()
        for process in processes:
            used = _memory(process)
            total += used
            name = self._seen.get(process.pid, "?")
            by_title[name] = by_title.get(name, 0) + used
        with self._lock:
            self._samples += 1
            self._peak = max(self._peak, total)
            for name, used in by_title.items():
                self._by_title[name] = max(self._by_title.get(name, 0), used)
        return time.thread_time() - began


def _rss(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except (psutil.Error, OSError):
        return 0


def _memory(process: psutil.Process) -> int:
    """PSS in bytes on Linux, USS elsewhere; 0 for a process that has gone."""
    try:
        if _LINUX:
            return proportional(Path(f"/proc/{process.pid}/smaps_rollup").read_text())
        return int(process.memory_full_info().uss)
    except (psutil.Error, OSError):
        return 0


def proportional(smaps_rollup: str) -> int:
    """Return the bytes of the ``Pss:`` line of a ``smaps_rollup``; 0 if there is none."""
    for line in smaps_rollup.splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0
