"""From an extract, a host and the catalogue to one diagnosis. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from packaging.specifiers import SpecifierSet

from harness.diagnose.catalogue import Catalogue
from harness.diagnose.extract import NOTE_LINES, Extract
from harness.diagnose.given import holds
from harness.diagnose.host import Host
from harness.diagnose.lines import Line
from harness.diagnose.signature import Signature, Way, compiled, joined
from harness.diagnose.tracebacks import SeenError, quoted

# A long log says the same thing at each step: so its reading takes seconds, not minutes.
_SAME_LINES = 20
_NUMBERS = re.compile(r"\d+")
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
        texts = [(text, extract.root.line) for text in texts_of(extract.root)]
        return _best(extract, catalogue, evidence, texts, "certain", anywhere=False)
    hidden = [
        (text, error.line) for error in reversed(extract.wrappers) for text in list(texts_of(error))[:-1]
    ]
    wrapped = [(error.message, error.line) for error in reversed(extract.wrappers)]
    loud = list(distinct(line for line in extract.lines if not line.quiet))
    mentioned = [(f"{type_}: {text}", line) for line in loud for type_, text in quoted(line.text)]
    return (
        _best(extract, catalogue, evidence, hidden, "certain", anywhere=False)
        or _best(extract, catalogue, evidence, [(line.text, line) for line in loud], "likely", anywhere=True)
        or _best(extract, catalogue, evidence, wrapped, "likely", anywhere=False)
        or _best(extract, catalogue, evidence, mentioned, "likely", anywhere=False)
        or _noted(extract, catalogue, evidence)
    )


def distinct(lines: Iterable[Line]) -> Iterator[Line]:
    """Of the lines that differ in their numbers alone, as each step's metrics, the first few."""
    seen: Counter[str] = Counter()
    for line in lines:
        form = _NUMBERS.sub("0", line.text)
        seen[form] += 1
        if seen[form] <= _SAME_LINES:
            yield line


def _noted(extract: Extract, catalogue: Catalogue, evidence: Evidence) -> Match | None:
    """A sentence or two from a person instead of a log: whatever fits is only possible."""
    spoken = [line for line in extract.lines if line.text.strip()]
    if extract.wrappers or len(spoken) > NOTE_LINES:
        return None
    return _best(
        extract, catalogue, evidence, [(line.text, line) for line in spoken], "possible", anywhere=False
    )


def texts_of(error: SeenError) -> Iterator[str]:
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
        found = _fitting(signature, held, extract, evidence)
        if found is None:
            continue
        groups, line, fits = found
        if fits and not open_:
            return Match(signature=signature, groups=groups, place=line, sure=sure)
        open_.append(Match(signature=signature, groups=groups, place=line, sure="possible"))
        if fits:
            break
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


def _fitting(
    signature: Signature, texts: list[tuple[str, Line]], extract: Extract, evidence: Evidence
) -> tuple[dict[str, str], Line, bool] | None:
    """The first way to know a signature that nothing contradicts; last, whether all of it holds."""
    possible = None
    for way in signature.ways:
        found = next(_found(way, texts), None)
        if found is None:
            continue
        fits = _fits(signature, way, found[0], extract, evidence)
        if fits is True:
            return *found, True
        if fits is None and possible is None:
            possible = found
    return (*possible, False) if possible is not None else None


def _found(way: Way, texts: list[tuple[str, Line]]) -> Iterator[tuple[dict[str, str], Line]]:
    for text, line in texts:
        for pattern in way.patterns:
            found = compiled(pattern).search(text)
            if found is not None:
                yield {key: value for key, value in found.groupdict().items() if value}, line


def _fits(
    signature: Signature, way: Way, groups: dict[str, str], extract: Extract, evidence: Evidence
) -> bool | None:
    answers = [holds(way.given, groups, extract, evidence.host)]
    if signature.verl:
        known = evidence.verl
        answers.append(
            None if known is None else SpecifierSet(signature.verl, prereleases=True).contains(known)
        )
    if False in answers:
        return False
    return None if None in answers else True
