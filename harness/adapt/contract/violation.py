"""A violation of the contract: what happened, why it must not, and the line that caused it."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Literal

from harness.adapt.contract.terms import Terms
from harness.errors import ContractError
from harness.evidence import events

Kind = Literal["dtype", "autocast", "attention", "operator", "library", "kernel", "shared memory"]
EVENT = "violation"
# A stack in events.jsonl must fit the line's limit.
_DEPTH = 40
_HARNESS = str(Path(__file__).parents[2])


@dataclass(frozen=True, kw_only=True)
class Place:
    """A frame of the stack."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        """As in messages: ``file:line``."""
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, kw_only=True)
class Roots:
    """Where verl is, where other people's packages are, and where the harness itself is."""

    verl: str | None
    packages: tuple[str, ...]
    harness: str = _HARNESS


def here() -> Roots:
    """The roots in this interpreter; verl may be a checkout."""
    spec = find_spec("verl")
    paths = sysconfig.get_paths()
    packages = {paths[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")}
    return Roots(
        verl=str(Path(spec.origin).parent) if spec and spec.origin else None, packages=tuple(sorted(packages))
    )


def blame(stack: Sequence[Place], roots: Roots) -> Place | None:
    """The line to look at, from a stack whose innermost frame comes first.

    It is the innermost one of verl, of the user's own code or of the harness (its rollout): torch,
    transformers and Ray only do what they are told.
    """
    return next((place for place in stack if _is_answerable(place, roots)), None)


def _is_answerable(place: Place, roots: Roots) -> bool:
    if any(root and place.file.startswith(f"{root}/") for root in (roots.verl, roots.harness)):
        return True
    packaged = any(place.file.startswith(f"{root}/") for root in roots.packages)
    return not packaged and not place.file.startswith("<")


def shown(place: Place, roots: Roots) -> str:
    """``verl/...:LINE`` for verl and packages, as on every machine; the whole path for the user's file."""
    for root in (roots.verl, roots.harness):
        if root and place.file.startswith(f"{root}/"):
            return f"{Path(place.file).relative_to(Path(root).parent)}:{place.line}"
    for root in sorted(roots.packages, key=len, reverse=True):
        if place.file.startswith(f"{root}/"):
            return f"{Path(place.file).relative_to(root)}:{place.line}"
    return str(place)


def _walk(frame: FrameType | None) -> Iterator[Place]:
    own = str(Path(__file__).parent)
    while frame is not None:
        if not frame.f_code.co_filename.startswith(own):
            yield Place(file=frame.f_code.co_filename, line=frame.f_lineno, function=frame.f_code.co_name)
        frame = frame.f_back


_told: set[tuple[Kind, str]] = set()


def forget() -> None:
    """In a forked child: nothing was seen by this process yet."""
    _told.clear()


def report(terms: Terms, kind: Kind, name: str, *, what: str, reason: str) -> None:
    """Write a violation down, the first of its kind with its stack, and raise if the terms are enforced."""
    stack = list(_walk(sys._getframe(1)))  # noqa: SLF001 - the stack is what is asked for
    roots = here()
    at = blame(stack, roots)
    where = shown(at, roots) if at else None
    if (kind, name) not in _told:
        _told.add((kind, name))
        events.emit(
            EVENT,
            violation=kind,
            name=name,
            what=what,
            reason=reason,
            where=where,
            profile=terms.profile,
            mode=terms.mode,
            stack=[f"{shown(place, roots)} {place.function}" for place in stack[:_DEPTH]],
        )
    if terms.mode == "enforce":
        raise error(what, where, reason, terms.profile)


def error(what: str, where: str | None, reason: str, profile: str) -> ContractError:
    """What the user is told, here or by the climb from the event."""
    return ContractError(
        f"{what}, which {profile} forbids",
        where=where,
        why=reason,
        todo="correct the line named, or the setting that leads there; with --ledger the run goes on and "
        "precision.json lists all of them",
    )
