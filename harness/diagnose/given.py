"""Whether what a pattern asks beside the text holds: the host, the rest of the log, the stack. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from harness.diagnose.extract import Extract
from harness.diagnose.host import Host
from harness.diagnose.signature import Given, compiled
from harness.diagnose.tracebacks import SeenError


def holds(given: Given, groups: Mapping[str, str], extract: Extract, host: Host) -> bool | None:
    """``True``; ``False`` where something contradicts; ``None`` where what would decide is not known."""
    answers = list(_answers(given, groups, extract, host))
    if False in answers:
        return False
    if None in answers:
        return False if given.known else None
    return True


def _answers(given: Given, groups: Mapping[str, str], extract: Extract, host: Host) -> Iterator[bool | None]:
    if given.gpus is not None:
        yield None if host.gpus is None else (host.gpus > 0) is (given.gpus == "some")
    if given.system is not None:
        yield None if host.system is None else host.system == given.system
    if given.machine is not None:
        yield None if host.machine is None else host.machine == given.machine
    if given.cpus_below is not None:
        yield None if host.cpus is None else host.cpus < given.cpus_below
    if given.log is not None:
        yield _in_log(given.log, extract)
    if given.log_without is not None:
        yield not _in_log(given.log_without, extract)
    if given.frames is not None:
        yield _in_frames(compiled(given.frames), extract.root)
    if given.raised is not None:
        yield _in_frames(compiled(given.raised), extract.root, last=1)
    if given.divides is not None:
        yield _divides(given.divides, groups)


def _in_log(pattern: str, extract: Extract) -> bool:
    return any(compiled(pattern).search(line.text) for line in extract.lines)


def _in_frames(pattern: re.Pattern[str], root: SeenError | None, *, last: int = 0) -> bool | None:
    """Not known where the stack was not printed, or was cut off."""
    if root is None or not root.frames:
        return None
    return any(pattern.search(f"{f.file}: {f.function}: {f.source}") for f in root.frames[-last:])


def _divides(names: tuple[str, str], groups: Mapping[str, str]) -> bool | None:
    try:
        part, whole = (int(groups[name]) for name in names)
    except (KeyError, ValueError):
        return None
    return part > 0 and whole % part == 0
