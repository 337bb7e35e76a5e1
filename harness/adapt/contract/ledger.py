"""The ledger of one process: all its threads are counted, and the counts are on disk as they grow.

A Ray worker mostly ends by a kill, so nothing may wait for an end: a thread writes the file whenever the
counts have changed. What a kill can take is what was counted within the last interval.
"""

from __future__ import annotations

import atexit
import json
import os
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

from harness.adapt.contract import dtypes
from harness.adapt.contract.dispatch import Counting
from harness.adapt.contract.terms import Terms
from harness.errors import VerlockError
from harness.evidence import events
from harness.evidence.files import replace_text
from harness.evidence.titles import own_title

FOLDER = "ledger"
INTERVAL_SECONDS = 0.25
_start = threading.Thread.start


class Ledger:
    """Counts of this process. One mode a thread: no locks, and no lost increments."""

    def __init__(self, terms: Terms, folder: Path | None) -> None:
        """``folder`` takes ``<pid>.json``; without one nothing is written."""
        self.terms = terms
        self.sightings: dict[str, Counter[str]] = {"attention": Counter(), "autocast": Counter()}
        self._file = folder / f"{os.getpid()}.json" if folder else None
        self._lock = threading.Lock()
        self._modes: list[Counting] = []
        self._ended = Counting(terms)
        self._main: Counting | None = None
        self._threads: set[int | None] = set()
        self._written = ""

    def start(self) -> None:
        """Count in this thread and in all that start from now on; write now, and as the counts grow."""
        self._main = self.mode()
        self._main.__enter__()
        threading.Thread.start = _counted(self)  # type: ignore[method-assign]
        self.flush()
        if self._file is not None:
            _start(threading.Thread(target=self._write_for_ever, name="verlock ledger", daemon=True))
        atexit.register(self.stop)

    def mode(self) -> Counting:
        """A counter for the thread that asks."""
        mode = Counting(self.terms)
        with self._lock:
            self._modes.append(mode)
            self._threads.add(threading.get_ident())
        return mode

    def retire(self, mode: Counting) -> None:
        """Keep the counts of a thread that has ended, and nothing else of it."""
        with self._lock:
            self._ended.add(mode)
            self._modes.remove(mode)
            if mode is not self._main:
                self._threads.discard(threading.get_ident())

    def stop(self) -> None:
        """Leave the thread that started it, and write the end."""
        threading.Thread.start = _start  # type: ignore[method-assign]
        if self._main is not None:
            self._main.__exit__(None, None, None)
            self.retire(self._main)
            self._main = None
        self.flush()

    def document(self) -> dict[str, Any]:
        """What this process did so far."""
        total = Counting(self.terms)
        with self._lock:
            for mode in (self._ended, *self._modes):
                total.add(mode)
        by_dtype: Counter[str] = Counter()
        by_device: Counter[str] = Counter()
        for (bits, device), count in total.counts.items():
            by_device[device] += count
            by_dtype.update(dict.fromkeys(dtypes.names_in(bits), count))
        return {
            "pid": os.getpid(),
            "role": os.environ.get(events.ROLE_VARIABLE) or own_title(),
            "operations": total.counts.total(),
            "by_dtype": dict(sorted(by_dtype.items())),
            "by_device": dict(sorted(by_device.items())),
            "forbidden": total.forbidden,
            "read_from_forbidden": total.read,
            "attention_kernels": dict(sorted(total.kernels.items())),
            "attention": dict(sorted(self.sightings["attention"].items())),
            "autocast": dict(sorted(self.sightings["autocast"].items())),
            "threads_not_counted": self._outside(),
        }

    def _outside(self) -> list[str]:
        """Python threads that were there before the ledger: none of verl's should be among them."""
        return sorted(
            thread.name
            for thread in threading.enumerate()
            if thread.ident not in self._threads and thread.name != "verlock ledger"
        )

    def flush(self) -> None:
        """Write the file if anything changed. A full disk must not end the trainer."""
        if self._file is None:
            return
        text = json.dumps(self.document(), indent=2) + "\n"
        if text != self._written:
            with suppress(VerlockError, OSError):
                self._file.parent.mkdir(exist_ok=True)
                replace_text(self._file, text, what="write the ledger")
                self._written = text

    def _write_for_ever(self) -> None:
        pause = threading.Event()
        while not pause.wait(INTERVAL_SECONDS):
            with suppress(RuntimeError):  # a dictionary that grew while it was copied: next time
                self.flush()


def _counted(ledger: Ledger) -> Any:
    """``Thread.start`` with the thread's own run inside a mode of its own."""

    def start(thread: threading.Thread) -> None:
        run = thread.run

        def counted() -> None:
            mode = ledger.mode()
            try:
                with mode:
                    run()
            finally:
                ledger.retire(mode)

        thread.run = counted  # type: ignore[method-assign]
        _start(thread)

    return start


_current: Ledger | None = None


def current() -> Ledger | None:
    """The ledger of this process, if it has one."""
    return _current


def begin(terms: Terms) -> Ledger:
    """Start this process's ledger; its file lies beside the run's events."""
    global _current  # noqa: PLW0603 - one a process, like the mode itself
    told = os.environ.get(events.FILE_VARIABLE)
    _current = Ledger(terms, Path(told).parent / FOLDER if told else None)
    _current.start()
    return _current
