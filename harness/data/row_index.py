"""Do rows have an index of their own? verl takes it from ``extra_info.index``, and 0 where there is none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from harness.data import parquet_schema
from harness.data.finding import Finding


class RowIndex:
    """Collects over batches, until two rows differ."""

    def __init__(self) -> None:
        """Start with no row."""
        self._values: set[Any] = set()
        self._rows = 0
        self._read = False

    def add(self, batch: Any) -> None:
        """Look at the ``extra_info.index`` of one ``pyarrow.RecordBatch``, where it has one."""
        import pyarrow.compute as pc

        self._rows += batch.num_rows
        extra = batch.column("extra_info") if "extra_info" in batch.schema.names else None
        if extra is None or "index" not in parquet_schema.field_names(extra.type):
            return
        self._read = True
        if len(self._values) < 2:
            found = pc.struct_field(extra, "index").to_pylist()
            self._values |= {0 if value is None else str(value) for value in found}

    def findings(self, columns: Sequence[str], path: str) -> Iterator[Finding]:
        """One finding where all rows have the same index; ``columns`` are those of the file."""
        if "extra_info" not in columns:
            what = "no column 'extra_info'"
        elif not self._read:
            what = "extra_info has no field 'index'"
        elif self._rows > 1 and len(self._values) == 1:
            what = f"extra_info.index is {next(iter(self._values))} in every row"
        else:
            return
        yield Finding(
            id="data-no-extra",
            level="warning",
            key=f"{path}:extra_info" if "extra_info" not in columns else f"{path}:extra_info.index",
            what=what,
            why="verl takes a row's index from extra_info.index, 0 where there is none, and reward functions "
            "get extra_info: here no index tells two rows apart",
            todo='add extra_info as {"index": number}, a number for each row',
        )
