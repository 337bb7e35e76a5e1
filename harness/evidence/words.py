"""A recorded command as its user may type it again: whole, or climbed between two rungs alone.

What was recorded is kept word for word: an option that is left out tests something else, and passes.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from harness.evidence.model import Run

CLIMB = "climb"
DASHES = "--"
_RUNGS = frozenset({"--from", "--to"})
_NOT_AGAIN = frozenset({"--json", "--print-config"})


def whole(run: Run, *more: str) -> list[str]:
    """The command itself with the options ``more``, for people: without ``--json``."""
    head, rest = parts(without(run.command, frozenset(), _NOT_AGAIN))
    return [*head, *more, *rest]


def between(run: Run, first: str, last: str) -> list[str]:
    """The command with these rungs alone; whole where its rungs are no matter of choice."""
    head, _rest = parts(run.command)
    if run.command[1:2] != [CLIMB] or "--learn" in head:
        return whole(run)
    head, rest = parts(without(run.command, _RUNGS, {"--full", *_NOT_AGAIN}))
    return [*head, "--from", first, "--to", last, *rest]


def parts(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """What stands before ``--``, and the rest with it."""
    at = words.index(DASHES) if DASHES in words else len(words)
    return list(words[:at]), list(words[at:])


def without(words: Sequence[str], options: AbstractSet[str], flags: AbstractSet[str]) -> list[str]:
    """The words without these: ``options`` with their value, in one word or in two, and ``flags``."""
    head, rest = parts(words)
    kept, skip = list[str](), False
    for word in head:
        if skip:
            skip = False
        elif word in options:
            skip = True
        elif word.partition("=")[0] not in options | flags:
            kept.append(word)
    return [*kept, *rest]
