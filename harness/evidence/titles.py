"""What to call a process: Ray's own title where there is one, else the module or script it runs.

Standard library only; a Ray worker imports it at its start.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path, PurePath

_SCRIPTS = ("python", "pypy")


def title(argv: Sequence[str]) -> str:
    """Name a process by its command line.

    Ray overwrites the command line: ``ray::WorkerDict.update_actor`` and ``ray::WorkerDict`` are the
    same process at two moments, so the method is left out.
    """
    words = [word for word in argv if word]
    if not words:
        return "?"
    if words[0].startswith("ray::"):
        return words[0].split(".")[0].split("(")[0].strip()
    name = PurePath(words[0].split(" ")[0]).name
    if not name.startswith(_SCRIPTS):
        return name
    for number, word in enumerate(words[1:], start=1):
        if word in {"-m", "-c"}:
            return words[number + 1] if word == "-m" and number + 1 < len(words) else "python -c"
        if not word.startswith("-"):
            return PurePath(word).name
    return name


def own_title() -> str:
    """Name this process, in some ten microseconds; never raises."""
    try:
        raw = Path("/proc/self/cmdline").read_bytes()
    except OSError:
        # No /proc (macOS): Ray's own setproctitle knows, if Ray is loaded.
        known = getattr(sys.modules.get("setproctitle"), "getproctitle", None)
        return title([known()] if known else list(sys.orig_argv))
    return title(raw.decode(errors="replace").split("\0"))
