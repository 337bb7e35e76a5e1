"""Writes down which modules each process of a run imports, for ``verlock deps``. Off unless asked for.

Python calls an audit hook before each import; what was imported before the plug-in came is written first.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

VARIABLE = "VERLOCK_IMPORTS"
_seen: set[str] = set()


def watch() -> None:
    """Start in this process, if the variable names a folder. A forked child goes on under its own number."""
    folder = os.environ.get(VARIABLE)
    if not folder:
        return
    for name in list(sys.modules):
        note(Path(folder), name)

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if event == "import" and isinstance(arguments[0], str):
            note(Path(folder), arguments[0])

    sys.addaudithook(hook)


def note(folder: Path, module: str) -> None:
    """Append a module's first two parts, once: ``google.protobuf`` and ``google.auth`` are two packages."""
    name = ".".join(module.split(".")[:2])
    if name in _seen:
        return
    _seen.add(name)
    line = f"{time.time():.6f} {name}\n".encode()
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
    descriptor = os.open(folder / f"{os.getpid()}.txt", flags, 0o644)
    try:
        os.write(descriptor, line)
    finally:
        os.close(descriptor)
