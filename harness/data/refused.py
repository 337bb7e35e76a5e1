"""Rows that cannot be converted: every kind of fault is told, with the places of its first rows.

They come in the order of the file, whoever found them: its reader, the layout or extra_info.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from harness.errors import Problem

if TYPE_CHECKING:
    from harness.data.chunk import Chunk

SHOWN = 10
_TODO = "repair or remove these rows; nothing was written"


@dataclass(kw_only=True)
class _Kind:
    first: Problem
    at: int
    count: int = 0
    others: list[str] = field(default_factory=list)

    @property
    def problem(self) -> Problem:
        if self.count == 1:
            return self.first
        shown = ", ".join(self.others)
        rest = self.count - 1 - len(self.others)
        others = f" and {rest} others" if rest else ""
        more = f" (and in {self.count - 1} more: {shown}{others})"
        return Problem(
            what=self.first.what + more, where=self.first.where, why=self.first.why, todo=self.first.todo
        )


class Refused:
    """Collects bad rows by column and reason; the first few places of each kind are kept."""

    def __init__(self) -> None:
        """Start with none."""
        self._kinds: dict[tuple[str, str], _Kind] = {}

    def __bool__(self) -> bool:
        """Whether a row was refused."""
        return bool(self._kinds)

    def note(self, chunk: Chunk, row: int, column: str, what: str) -> None:
        """Remember one row of a chunk."""
        where = f"{chunk.path}:{chunk.place(row)}:{column}"
        found = Problem(what=f"{column} {what}", where=where, todo=_TODO)
        self.add(found, place=chunk.place(row), kind=(column, what), at=chunk.line(row))

    def add(self, found: Problem, *, place: str, kind: tuple[str, str], at: int) -> None:
        """Remember one row or line; of one ``kind`` the first problem is told, and the others' places.

        ``at`` is its line, or its row in a file without lines: problems are told in this order.
        """
        known = self._kinds.setdefault(kind, _Kind(first=found, at=at))
        known.count += 1
        if 1 < known.count <= SHOWN:
            known.others.append(place)

    def absorb(self, other: Refused) -> None:
        """Take in what another one has collected, of other kinds than these."""
        self._kinds |= other._kinds

    def problems(self) -> Iterator[Problem]:
        """One problem a kind, the first line first."""
        return (kind.problem for kind in sorted(self._kinds.values(), key=lambda kind: kind.at))
