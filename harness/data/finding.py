"""One thing that a check found: what every check of this project hands up, for people and as JSON.

A *fault* makes the command fail. A *warning* does not: verl will run, perhaps not as meant. A *note* says
what was not looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from harness.errors import Problem

Level = Literal["fault", "warning", "note"]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """``id`` names the kind and never changes; ``key`` is the place: a Hydra key, or file, row and column."""

    id: str
    key: str
    what: str
    why: str | None = None
    todo: str | None = None
    level: Level = "fault"

    @property
    def problem(self) -> Problem:
        """The same as part of an error."""
        return Problem(what=self.what, where=self.key, why=self.why, todo=self.todo)

    def document(self) -> dict[str, Any]:
        """The same for JSON."""
        return asdict(self)


def faults(findings: Iterable[Finding]) -> list[Finding]:
    """Those that make a command fail."""
    return [finding for finding in findings if finding.level == "fault"]


def of_problems(problems: Sequence[Problem], *, kind: str) -> list[Finding]:
    """Faults made from the problems of an error that another check raised."""
    return [Finding(id=kind, key=p.where or "", what=p.what, why=p.why, todo=p.todo) for p in problems]
