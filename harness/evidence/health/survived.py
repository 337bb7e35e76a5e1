"""What verl, Ray and torch say once, in passing, and go on: as findings. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from harness.errors import FailureClass
from harness.evidence.model import Finding

# Finding, class, what a line says, why it matters, what to do. Named groups fill in `what`.
_SIGNS: Mapping[str, tuple[FailureClass, re.Pattern[str], str, str, str]] = {
    "shared-memory-small": (
        "resource",
        # ray 2.55, _private/services.py, determine_plasma_store_config
        re.compile(
            r"object store is using (?P<folder>\S+) instead of /dev/shm because .* only (?P<free>\d+) bytes"
        ),
        "shared memory is too small: {free} bytes are free, and Ray keeps its objects in files of {folder}",
        "every weight and batch that passes between processes goes through the disk",
        "start the container with --shm-size (--ipc=host), or give /dev/shm more memory",
    ),
    "memory-low": (
        "resource",
        # ray 2.55, its memory monitor, after it has ended a worker that is started again
        re.compile(r"(?P<count>\d+) Workers? \(tasks ?/ ?actors\) killed due to memory pressure"),
        "{count} of Ray's workers were killed because the memory ran out",
        "Ray starts some of them again; the run goes on slower, or with another's work lost",
        "use a smaller model or batch, fewer workers or a smaller object store, or more memory",
    ),
}


def of_line(line: str, rung: str) -> Finding | None:
    """The finding that a line of output is a sign of."""
    for id_, (kind, sign, what, why, todo) in _SIGNS.items():
        found = sign.search(line)
        if found is not None:
            return Finding(
                id=id_,
                failure_class=kind,
                rung=rung,
                what=what.format(**found.groupdict()),
                why=why,
                todo=todo,
            )
    return None
