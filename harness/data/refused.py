"""Rows that cannot be converted: every kind of fault is told, with the places of its first rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from harness.data.sources import Chunk
from harness.errors import Problem

_SHOWN = 3


@dataclass(kw_only=True)
class Refused:
    """Rows that cannot be converted, by column and reason; the first few places are kept."""

    places: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)

    def note(self, chunk: Chunk, row: int, column: str, what: str) -> None:
        """Remember one row."""
        self.counts[column, what] += 1
        kept = self.places.setdefault((column, what), [])
        if len(kept) < _SHOWN:
            kept.append(chunk.where(row, column))

    def problems(self) -> Iterator[Problem]:
        """One problem a column and reason, with the places of the first rows."""
        for (column, what), places in self.places.items():
            count = self.counts[column, what]
            more = f" (and in {count - 1} more rows: {', '.join(places[1:])})" if count > 1 else ""
            todo = "repair or remove these rows; nothing was written"
            yield Problem(what=f"{column} {what}{more}", where=places[0], todo=todo)
