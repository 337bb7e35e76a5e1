"""Whether what a pattern asks beside the text holds: the host, the rest of the log, the stack. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from harness.diagnose.extract import NOTE_LINES, Extract
from harness.diagnose.host import Host
from harness.diagnose.signature import Given, compiled, joined
from harness.diagnose.tracebacks import Frame


def holds(given: Given, groups: Mapping[str, str], extract: Extract, host: Host) -> bool | None:
    """``True``; ``False`` where something contradicts; ``None`` where what would decide is not known."""
    answers = list(_answers(given, groups, extract, host))
    if False in answers:
        return False
    if None in answers:
        return False if given.known else None
    return True


def _answers(given: Given, groups: Mapping[str, str], extract: Extract, host: Host) -> Iterator[bool | None]:
    yield from _of_host(given, host)
    yield from _of_log(given, extract)
    if given.frames is not None:
        yield _in_frames(compiled(given.frames), _stack(extract))
    if given.raised is not None:
        yield _in_frames(compiled(given.raised), _stack(extract)[-1:])
    if given.divides is not None:
        yield _divides(given.divides, groups)


def _of_host(given: Given, host: Host) -> Iterator[bool | None]:
    if given.gpus is not None:
        yield None if host.gpus is None else (host.gpus > 0) is (given.gpus == "some")
    if given.system is not None:
        yield None if host.system is None else host.system == given.system
    if given.machine is not None:
        yield None if host.machine is None else host.machine == given.machine
    if given.cpus_below is not None:
        yield None if host.cpus is None else host.cpus < given.cpus_below


def _of_log(given: Given, extract: Extract) -> Iterator[bool]:
    if given.log is not None:
        yield _in_log(given.log, extract)
    if given.log_without is not None:
        yield not _in_log(given.log_without, extract)
    if given.note is not None:
        yield (len(extract.spoken) <= NOTE_LINES) is given.note
    if given.run is not None:
        yield _in_run(given.run, extract)


def _in_log(pattern: str, extract: Extract) -> bool:
    return any(compiled(pattern).search(line.text) for line in extract.lines)


def _in_run(pattern: str, extract: Extract) -> bool:
    """Many kinds ask the same of a log: it is read for each pattern once."""
    if pattern not in extract.found:
        extract.found[pattern] = any(compiled(pattern).search(joined(form)) for form in extract.forms)
    return extract.found[pattern]


def _stack(extract: Extract) -> tuple[Frame, ...]:
    """The true error's; what a cut log still has of it; or that of the last error which hides it."""
    if extract.root is not None:
        return extract.root.frames
    return extract.cut or next((e.frames for e in reversed(extract.wrappers) if e.frames), ())


def _in_frames(pattern: re.Pattern[str], frames: tuple[Frame, ...]) -> bool | None:
    """Not known where the stack was not printed."""
    if not frames:
        return None
    return any(pattern.search(f"{f.file}: {f.function}: {f.source}") for f in frames)


def _divides(names: tuple[str, str], groups: Mapping[str, str]) -> bool | None:
    try:
        part, whole = (int(groups[name]) for name in names)
    except (KeyError, ValueError):
        return None
    return part > 0 and whole % part == 0
