"""Rows from whatever file people have, a chunk at a time: columns of Python values and where each row stood.

Python's own ``json`` and ``csv`` read the text formats, not Arrow's readers: those guess types block by
block (a text that looks like a time becomes one), and a ground truth must stay the text that it is.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TextIO

from harness.errors import DataError

ROWS = 16384
_FIELD_LIMIT = 1 << 27  # one CSV cell; csv's own limit of 128 KiB is less than a long conversation


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """``columns`` of equal length; ``first`` counts rows from 0; ``lines`` are those of a text file."""

    path: Path
    columns: dict[str, list[Any]]
    first: int
    rows: int
    lines: Sequence[int] | None = None

    def where(self, row: int, column: str) -> str:
        """Where the row with this place in the chunk stands, for a message."""
        line = "" if self.lines is None else f" (line {self.lines[row]})"
        return f"{self.path}:row {self.first + row}{line}:{column}"

    def column(self, name: str) -> list[Any]:
        """The column's values, or as many nulls: rows of JSON need not all have the same keys."""
        values = self.columns.get(name)
        return [None] * self.rows if values is None else values

    def only(self, names: frozenset[str]) -> Chunk:
        """The same rows with no other columns than these."""
        return replace(self, columns={name: self.columns[name] for name in names if name in self.columns})


def read(path: Path, *, split: str | None = None) -> Iterator[Chunk]:
    """Stream ``path``: JSONL, CSV, TSV, Parquet, or a folder that ``datasets`` saved (with its ``split``).

    Raises :class:`DataError` with row or line for what cannot be read.
    """
    if path.is_dir():
        return _saved_dataset(path, split)
    if not path.exists():
        raise DataError("there is no such file", where=str(path), todo="check the path")
    if not path.is_file():
        raise DataError("this is not a file", where=str(path), todo="give a regular file")
    match path.suffix.lower():
        case ".jsonl" | ".json" | ".ndjson":
            return _text(path, _json_lines)
        case ".csv" | ".tsv":
            return _text(path, _separated)
        case ".parquet":
            return _parquet(path)
    raise DataError(
        f"a file that ends in {path.suffix or 'nothing'!r} is not known",
        where=str(path),
        todo="give .jsonl, .csv, .tsv, .parquet, or a folder made by datasets' save_to_disk",
    )


def _text(path: Path, reader: Any) -> Iterator[Chunk]:
    try:
        # utf-8-sig: spreadsheets write a byte order mark, which would become part of the first column's name.
        with path.open(encoding="utf-8-sig", newline="") as file:
            yield from reader(path, file)
    except UnicodeDecodeError as error:
        raise DataError(
            "the file is not UTF-8",
            where=f"{path}:byte {error.start} of a block",
            why=str(error),
            todo="convert it, for example: iconv -f LATIN1 -t UTF-8",
        ) from error
    except OSError as error:
        raise DataError("the file cannot be read", where=str(path), why=str(error)) from error


def _json_lines(path: Path, file: TextIO) -> Iterator[Chunk]:
    rows: list[dict[str, Any]] = []
    lines: list[int] = []
    first = 0
    for number, line in enumerate(file, 1):
        if not line.strip():
            continue
        rows.append(_json_object(path, number, line))
        lines.append(number)
        if len(rows) == ROWS:
            yield _turned(path, rows, first, lines)
            first, rows, lines = first + len(rows), [], []
    if rows:
        yield _turned(path, rows, first, lines)


def _json_object(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        column = getattr(error, "colno", None)
        listed = number == 1 and line.lstrip().startswith("[")
        raise DataError(
            "this line is not JSON",
            where=f"{path}:{number}" + (f":character {column}" if column else ""),
            why=str(error),
            todo="write one object a line: jq -c '.[]' FILE" if listed else "repair or remove the line",
        ) from error
    if isinstance(value, dict):
        return value
    what = f"this line is a JSON {type(value).__name__}, not an object"
    raise DataError(what, where=f"{path}:{number}", todo="write one object a line: jq -c '.[]' FILE")


def _turned(path: Path, rows: list[dict[str, Any]], first: int, lines: list[int]) -> Chunk:
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {name: [row.get(name) for row in rows] for name in names}
    return Chunk(path=path, columns=columns, first=first, rows=len(rows), lines=lines)


def _separated(path: Path, file: TextIO) -> Iterator[Chunk]:
    csv.field_size_limit(_FIELD_LIMIT)
    reader = csv.reader(file, strict=True, delimiter="\t" if path.suffix.lower() == ".tsv" else ",")
    try:
        names = next(reader, [])
        _names(path, names)
        first, rows, lines = 0, list[list[str]](), list[int]()
        for row in reader:
            if not row:
                continue
            if len(row) != len(names):
                what = f"{len(row)} cells, but the head line names {len(names)} columns"
                where = f"{path}:row {first + len(rows)} (line {reader.line_num})"
                raise DataError(what, where=where, todo='put cells with commas or line breaks into "quotes"')
            rows.append(row)
            lines.append(reader.line_num)
            if len(rows) == ROWS:
                yield _cells(path, names, rows, first, lines)
                first, rows, lines = first + len(rows), [], []
        if rows:
            yield _cells(path, names, rows, first, lines)
    except csv.Error as error:
        raise DataError(
            "this line is not CSV", where=f"{path}:{reader.line_num}", why=str(error), todo="repair the line"
        ) from error


def _names(path: Path, names: list[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice or not all(name.strip() for name in names):
        what = f"the column {twice[0]!r} is named twice" if twice else "a column has no name"
        raise DataError(what, where=f"{path}:1", todo="name each column once, in the first line")


def _cells(path: Path, names: list[str], rows: list[list[str]], first: int, lines: list[int]) -> Chunk:
    # CSV does not tell an empty text from none.
    columns = {name: [row[n] or None for row in rows] for n, name in enumerate(names)}
    return Chunk(path=path, columns=columns, first=first, rows=len(rows), lines=lines)


def _parquet(path: Path) -> Iterator[Chunk]:
    import pyarrow as pa

    from harness.data import parquet_check

    first = 0
    with parquet_check.opened(path) as file:
        try:
            for batch in file.iter_batches(batch_size=ROWS, use_threads=False):
                columns = {name: batch.column(name).to_pylist() for name in batch.schema.names}
                yield Chunk(path=path, columns=columns, first=first, rows=batch.num_rows)
                first += batch.num_rows
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            where = f"{path}:row {first} or later"
            raise DataError(
                "the file is damaged", where=where, why=str(error), todo="copy it again"
            ) from error


def _saved_dataset(folder: Path, split: str | None) -> Iterator[Chunk]:
    import datasets

    datasets.disable_progress_bars()
    try:
        dataset = datasets.load_from_disk(str(folder))
    except Exception as error:  # datasets and Arrow raise many kinds for a damaged folder
        raise DataError(
            "this folder is not a data set that `datasets` saved",
            where=str(folder),
            why=f"{type(error).__name__}: {error}",
            todo="make it with Dataset.save_to_disk(FOLDER), or give one of its files",
        ) from error
    if isinstance(dataset, datasets.DatasetDict):
        if len(dataset) > 1 and split not in dataset:
            names = ", ".join(dataset)
            what = (
                f"the folder holds several splits: {names}" if not split else f"there is no split {split!r}"
            )
            raise DataError(what, where=str(folder), todo=f"give --split, one of: {names}")
        dataset = dataset[split] if split in dataset else next(iter(dataset.values()))
    first = 0
    try:
        for table in dataset.with_format("arrow").iter(batch_size=ROWS):
            columns = {name: table.column(name).to_pylist() for name in table.column_names}
            yield Chunk(path=folder, columns=columns, first=first, rows=table.num_rows)
            first += table.num_rows
    except Exception as error:  # as above, in the middle of a file
        where = f"{folder}:row {first} or later"
        raise DataError(
            "the data set is damaged", where=where, why=str(error), todo="save it again"
        ) from error
