"""From an extract, a host and the catalogue to one diagnosis. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from packaging.specifiers import SpecifierSet

from harness.diagnose.catalogue import Catalogue
from harness.diagnose.extract import Extract
from harness.diagnose.host import Host
from harness.diagnose.lines import Line
from harness.diagnose.signature import Given, Signature, compiled, joined
from harness.diagnose.tracebacks import SeenError, quoted

# More lines than this are a log, and a log says what happened in a form of its own.
_NOTE_LINES = 5
Sure = Literal["certain", "likely", "possible"]


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What is known beside the log's text."""

    host: Host = field(default_factory=Host)
    verl: str | None = None


@dataclass(frozen=True, kw_only=True)
class Match:
    """A signature that fits. ``place`` is the log's line that it was found in."""

    signature: Signature
    groups: dict[str, str]
    place: Line
    sure: Sure
    rivals: tuple[str, ...] = ()
    """Signatures that fit as well, because what would decide is not known."""

    @property
    def cause(self) -> str:
        """The signature's sentence with what the message named."""
        return _filled(self.signature.cause, self.groups)

    @property
    def fix(self) -> str:
        """What to do, likewise."""
        return _filled(self.signature.fix, self.groups)


def _filled(sentence: str, groups: dict[str, str]) -> str:
    """Names in braces become what the message said; what it did not say becomes "that NAME"."""
    return re.sub(r"\{(\w+)\}", lambda found: groups.get(found[1], f"that {found[1]}"), sentence)


def match(extract: Extract, catalogue: Catalogue, evidence: Evidence) -> Match | None:
    """The first signature that fits the root; without a root, signs in the lines, then the wrappers.

    A true error that no signature knows is unknown, whatever else stands in the log: never guess.
    """
    if extract.root is not None:
        texts = [(text, extract.root.line) for text in _texts(extract.root)]
        return _best(extract, catalogue, evidence, texts, "certain", anywhere=False)
    hidden = [(text, error.line) for error in reversed(extract.wrappers) for text in list(_texts(error))[:-1]]
    wrapped = [(error.message, error.line) for error in reversed(extract.wrappers)]
    loud = [line for line in extract.lines if not line.quiet]
    mentioned = [(f"{type_}: {text}", line) for line in loud for type_, text in quoted(line.text)]
    return (
        _best(extract, catalogue, evidence, hidden, "certain", anywhere=False)
        or _best(extract, catalogue, evidence, [(line.text, line) for line in loud], "likely", anywhere=True)
        or _best(extract, catalogue, evidence, wrapped, "likely", anywhere=False)
        or _best(extract, catalogue, evidence, mentioned, "likely", anywhere=False)
        or _noted(extract, catalogue, evidence)
    )


def _noted(extract: Extract, catalogue: Catalogue, evidence: Evidence) -> Match | None:
    """A sentence or two from a person instead of a log: whatever fits is only possible."""
    spoken = [line for line in extract.lines if line.text.strip()]
    if extract.wrappers or len(spoken) > _NOTE_LINES:
        return None
    return _best(
        extract, catalogue, evidence, [(line.text, line) for line in spoken], "possible", anywhere=False
    )


def _texts(error: SeenError) -> Iterator[str]:
    """What to look at: errors quoted in the message, innermost first, then the message itself."""
    for type_, text in reversed(quoted(error.text)):
        yield f"{type_}: {text}"
    yield error.message


def _best(
    extract: Extract,
    catalogue: Catalogue,
    evidence: Evidence,
    texts: Iterable[tuple[str, Line]],
    sure: Sure,
    *,
    anywhere: bool,
) -> Match | None:
    held = [(joined(text), line) for text, line in texts]
    open_: list[Match] = []
    for signature in catalogue.signatures:
        if anywhere and not signature.anywhere:
            continue
        found = next(_found(signature, held), None)
        if found is None:
            continue
        groups, line = found
        fits = _fits(signature, groups, extract, evidence)
        if fits is True:
            if not open_:
                return Match(signature=signature, groups=groups, place=line, sure=sure)
            open_.append(Match(signature=signature, groups=groups, place=line, sure="possible"))
            break
        if fits is None:
            open_.append(Match(signature=signature, groups=groups, place=line, sure="possible"))
    return _first_of(open_)


def _first_of(matches: list[Match]) -> Match | None:
    if not matches:
        return None
    first, *rest = matches
    return Match(
        signature=first.signature,
        groups=first.groups,
        place=first.place,
        sure="possible",
        rivals=tuple(other.signature.id for other in rest),
    )


def _found(signature: Signature, texts: list[tuple[str, Line]]) -> Iterator[tuple[dict[str, str], Line]]:
    for text, line in texts:
        for pattern in signature.patterns:
            found = compiled(pattern).search(text)
            if found is not None:
                yield {key: value for key, value in found.groupdict().items() if value}, line


def _fits(signature: Signature, groups: dict[str, str], extract: Extract, evidence: Evidence) -> bool | None:
    """``True``; ``False`` where something contradicts; ``None`` where what would decide is not known."""
    answers = list(_answers(signature.given, groups, extract, evidence.host))
    if signature.verl:
        known = evidence.verl
        answers.append(
            None if known is None else SpecifierSet(signature.verl, prereleases=True).contains(known)
        )
    if False in answers:
        return False
    if None in answers:
        return False if signature.given.known else None
    return True


def _answers(given: Given, groups: dict[str, str], extract: Extract, host: Host) -> Iterator[bool | None]:
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


def _divides(names: tuple[str, str], groups: dict[str, str]) -> bool | None:
    try:
        part, whole = (int(groups[name]) for name in names)
    except (KeyError, ValueError):
        return None
    return part > 0 and whole % part == 0
