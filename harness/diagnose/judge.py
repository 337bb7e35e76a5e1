"""The class of a failure that no signature knows: from its type, its words, and the code that raised it.

The class says where to look; it is no cause, and brings no fix. Where nothing tells it, it stays unknown.
"""

from __future__ import annotations

from collections.abc import Iterator

from harness.diagnose.catalogue import Catalogue
from harness.diagnose.extract import NOTE_LINES, Extract
from harness.diagnose.given import holds
from harness.diagnose.host import Host
from harness.diagnose.match import texts_of
from harness.diagnose.signature import Kind, compiled, joined
from harness.diagnose.tracebacks import quoted

# What a log says at its end; more would only be read to the same answer.
_LOUD_LINES = 200
# A traceback without its end: that something was raised, and where.
_UNNAMED = "Exception"


def judge(extract: Extract, catalogue: Catalogue, host: Host) -> Kind | None:
    """The first kind that fits what is known of the failure best."""
    for texts in _layers(extract):
        held = [joined(text) for text in texts]
        for kind in catalogue.kinds:
            if _fits(kind, held, extract, host):
                return kind
    return None


def _layers(extract: Extract) -> Iterator[list[str]]:
    """The true error alone; without one: a crash, the errors that hide it, and what the lines say.

    Of an error that is only named, as in ``RayTaskError(KeyError)``, the type is what is known.
    """
    if extract.root is not None:
        yield list(texts_of(extract.root))
        return
    named = [error.of for error in reversed(extract.wrappers) if error.of]
    if extract.cut and extract.crash is None and not extract.wrappers:
        yield [_UNNAMED]  # what else the log says is no error of this one
        return
    if extract.crash is not None:
        yield [extract.crash.text]
    yield [text for error in reversed(extract.wrappers) for text in texts_of(error)]
    loud = [line.text for line in extract.loud[-_LOUD_LINES:]]
    noted = [line.text for line in extract.spoken] if len(extract.spoken) <= NOTE_LINES else []
    yield [f"{type_}: {text}" for line in noted or loud for type_, text in quoted(line)]
    yield loud
    yield named or [_UNNAMED] if extract.cut else named
    yield noted


def _fits(kind: Kind, texts: list[str], extract: Extract, host: Host) -> bool:
    found = (compiled(pattern).search(text) for pattern in kind.patterns for text in texts)
    return any(one is not None for one in found) and holds(kind.given, {}, extract, host) is not False
