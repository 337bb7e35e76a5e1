"""The command line that others see for this process: a forked one would show its server's.

The record tells processes apart by it (harness/evidence/titles.py), and so does a user with ``ps``.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path

# proc(5): arg_start and arg_end are the fields 48 and 49 of stat; the second field may hold spaces.
# Room for a driver's command line, about 5,000 characters, as the last word of the server's own.
PADDING = " " * 8192
_ARG_START, _ARG_END, _FIELDS_BEFORE_STATE = 48, 49, 3


def room() -> tuple[int, int]:
    """Address and size of the memory that ``/proc/PID/cmdline`` is read from; zeros where that is hidden."""
    fields = Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    start, end = (int(fields[number - _FIELDS_BEFORE_STATE]) for number in (_ARG_START, _ARG_END))
    return start, end - start


def write(words: Sequence[str]) -> None:
    """Show ``words`` as this process's command line, cut where there is no room."""
    start, size = room()
    if start == 0 or size <= 1:
        return
    text = b"\0".join(word.encode(errors="replace") for word in words)[: size - 1]
    ctypes.memmove(start, text + b"\0" * (size - len(text)), size)
