"""The command line and the run id that others see for this process: a forked one would show its server's.

The record tells processes apart by the first (harness/evidence/titles.py), and so does a user with ``ps``;
a sweep finds a run's processes by the second (harness/evidence/processes.py).
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path

# proc(5): arg_start, arg_end, env_start and env_end are the fields 48 to 51 of stat; the second field may
# hold spaces.
# Room for a driver's command line, about 5,000 characters, as the last word of the server's own.
PADDING = " " * 8192
_ARG_START, _ENV_START, _FIELDS_BEFORE_STATE = 48, 50, 3


def room(first: int = _ARG_START) -> tuple[int, int]:
    """Address and size of the memory that ``/proc/PID/cmdline`` is read from; zeros where that is hidden.

    With ``_ENV_START`` that of ``/proc/PID/environ``.
    """
    fields = Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    start, end = (int(fields[number - _FIELDS_BEFORE_STATE]) for number in (first, first + 1))
    return start, end - start


def write(words: Sequence[str]) -> None:
    """Show ``words`` as this process's command line, cut where there is no room."""
    start, size = room()
    if start == 0 or size <= 1:
        return
    text = b"\0".join(word.encode(errors="replace") for word in words)[: size - 1]
    ctypes.memmove(start, text + b"\0" * (size - len(text)), size)


def show(name: str, value: str) -> bool:
    """Show ``value`` for an environment variable that this process was started with, in the same room.

    ``False`` where the variable is not shown, or has another length.
    """
    start, size = room(_ENV_START)
    shown = ctypes.string_at(start, size) if start else b""
    place = shown.find(f"\0{name}=".encode()) + 1 if not shown.startswith(f"{name}=".encode()) else 0
    begin = place + len(name) + 1
    end = shown.find(b"\0", begin)
    text = value.encode()
    if not shown[place:].startswith(f"{name}=".encode()) or end - begin != len(text):
        return False
    ctypes.memmove(start + begin, text, len(text))
    return True
