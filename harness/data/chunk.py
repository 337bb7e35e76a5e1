"""Some rows of a user's file: columns of Python values, and where each row stood."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

ROWS = 16384


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """``columns`` of equal length; ``first`` counts rows from 0.

    ``places`` are row and line of each in a text file, in which rows before it may have been passed over.
    """

    path: Path
    columns: dict[str, list[Any]]
    first: int
    rows: int
    places: Sequence[tuple[int, int]] | None = None

    def place(self, row: int) -> str:
        """Where the row with this place in the chunk stands in its file, for a message."""
        if self.places is None:
            return f"row {self.first + row}"
        return "row {} (line {})".format(*self.places[row])

    def line(self, row: int) -> int:
        """The same as a number that grows along the file: a line of a text file, else a row."""
        return self.first + row if self.places is None else self.places[row][1]

    def column(self, name: str) -> list[Any]:
        """The column's values, or as many nulls: rows of JSON need not all have the same keys."""
        values = self.columns.get(name)
        return [None] * self.rows if values is None else values

    def only(self, names: frozenset[str]) -> Chunk:
        """The same rows with no other columns than these."""
        return replace(self, columns={name: self.columns[name] for name in names if name in self.columns})
