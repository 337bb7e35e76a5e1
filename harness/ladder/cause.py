"""The first error in a trainer's output: what came later was mostly caused by it.

Ray wraps a worker's error in its own, and the driver's traceback ends with the wrapper. In the merged
output the worker's own traceback comes first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_PREFIX = re.compile(r"^\((?:pid=|\w+ pid=)[^)]*\)\s*")
_ERROR = re.compile(r"^(?P<type>[A-Za-z_][\w.]*(?:Error|Exception|Interrupt))(?:\(\w+\))?:\s*(?P<text>.*)")
_WRAPPERS = ("RayTaskError", "ActorDiedError", "RayActorError", "WorkerCrashedError")


def first_error(lines: Iterable[str]) -> str | None:
    """``TypeError: ...`` of the first error that is no wrapper; else the first wrapper; else none."""
    wrapper = None
    for line in lines:
        match = _ERROR.match(_PREFIX.sub("", _ANSI.sub("", line)).strip())
        if match is None:
            continue
        text = f"{match['type']}: {match['text']}"
        if not any(name in match["type"] for name in _WRAPPERS):
            return text
        wrapper = wrapper or text
    return wrapper
