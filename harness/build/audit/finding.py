"""One verdict of the audit, for people, for programs, and as a part of an error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from harness.errors import Problem

Severity = Literal["runs", "unused", "unknown", "refused"]
"""``unused``: the card cannot run it, it is installed all the same, and nothing may call it.
``unknown``: a sample that met nothing to decide by."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One verdict."""

    severity: Severity
    subject: str
    """Package and version, or what else is judged."""
    what: str
    library: str | None = None
    why: str | None = None
    todo: str | None = None
    runs: int = 0
    """Containers that the card can load, of ``of``."""
    of: int = 0

    def problem(self) -> Problem:
        """As an error's part."""
        return Problem(what=f"{self.subject}: {self.what}", where=self.library, why=self.why, todo=self.todo)
