"""Rows of JSONL, CSV and TSV, a chunk at a time; every line that is none is noted, and passed over.

Python's own ``json`` and ``csv`` read them, not Arrow's readers: those guess types block by block (a text
that looks like a time becomes one), and a ground truth must stay the text that it is.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from harness.data import encoding
from harness.data.chunk import ROWS, Chunk
from harness.data.refused import Refused
from harness.errors import DataError, Problem

_FIELD_LIMIT = 1 << 27  # one CSV cell; csv's own limit of 128 KiB is less than a long conversation


def lines(path: Path, refused: Refused) -> Iterator[Chunk]:
    """JSON, one object a line; raises :class:`DataError`."""
    return _text(path, _json_lines, refused)


def separated(path: Path, refused: Refused) -> Iterator[Chunk]:
    """CSV, or TSV by its name; raises :class:`DataError`."""
    return _text(path, _separated, refused)


def _text(path: Path, reader: Any, bad: Refused) -> Iterator[Chunk]:
    """Chunks of the good rows."""
    try:
        # utf-8-sig: spreadsheets write a byte order mark, which would become part of the first column's name.
        with path.open(encoding="utf-8-sig", newline="") as file:
            yield from reader(path, file, bad)
    except UnicodeDecodeError as error:
        encoding.tell(path, error, bad)
    except OSError as error:
        raise DataError("the file cannot be read", where=str(path), why=str(error)) from error


def _json_lines(path: Path, file: TextIO, bad: Refused) -> Iterator[Chunk]:
    rows: list[dict[str, Any]] = []
    places: list[tuple[int, int]] = []
    first = row = 0
    for number, line in enumerate(file, 1):
        if not line.strip():
            continue
        value = _json_object(path, number, line, bad)
        if value is not None:
            rows.append(value)
            places.append((row, number))
        row += 1
        if len(rows) == ROWS:
            yield _turned(path, rows, first, places)
            first, rows, places = first + len(rows), [], []
    if rows:
        yield _turned(path, rows, first, places)


def _json_object(path: Path, number: int, line: str, bad: Refused) -> dict[str, Any] | None:
    place, why = "", None
    try:
        value = json.loads(line)
        if isinstance(value, dict):
            return value
        what = f"this line is a JSON {type(value).__name__}, not an object"
        if value is None:
            what, why = "this line is null, not an object", "each line is a row"
    except json.JSONDecodeError as error:
        what, why = "this line is not JSON", error.msg
        place = f":character {min(error.pos, len(line.rstrip())) + 1}"
    except RecursionError:
        what, why = "this line is nested too deeply", "Python's own reader of JSON gives it up"
    except ValueError as error:
        what, why = "this line is not JSON", str(error)
    listed = number == 1 and line.lstrip().startswith("[")
    found = Problem(
        what=what,
        where=f"{path}:{number}{place}",
        why=why,
        todo="write one object a line: jq -c '.[]' FILE"
        if listed or why is None
        else "repair or remove the line",
    )
    bad.add(found, place=f"line {number}", kind=("", what), at=number)
    return None


def _turned(path: Path, rows: list[dict[str, Any]], first: int, places: list[tuple[int, int]]) -> Chunk:
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {name: [row.get(name) for row in rows] for name in names}
    return Chunk(path=path, columns=columns, first=first, rows=len(rows), places=places)


def _separated(path: Path, file: TextIO, bad: Refused) -> Iterator[Chunk]:
    csv.field_size_limit(_FIELD_LIMIT)
    reader = csv.reader(file, strict=True, delimiter="\t" if path.suffix.lower() == ".tsv" else ",")
    names = _names(path, reader)
    rows: list[list[str]] = []
    places: list[tuple[int, int]] = []
    first = number = 0
    for row in _csv_rows(path, reader, bad):
        place = (number, reader.line_num)
        number += 1
        if len(row) != len(names):
            _miscounted(path, place, len(row), len(names), bad)
            continue
        rows.append(row)
        places.append(place)
        if len(rows) == ROWS:
            yield _cells(path, names, rows, first, places)
            first, rows, places = first + len(rows), [], []
    if rows:
        yield _cells(path, names, rows, first, places)


def _csv_rows(path: Path, reader: Any, bad: Refused) -> Iterator[list[str]]:
    """Rows with anything in them; after one that is no CSV the reader goes on at the next line."""
    while True:
        try:
            row = next(reader, None)
        except csv.Error as error:
            line, what = reader.line_num, "this line is not CSV"
            found = Problem(what=what, where=f"{path}:{line}", why=str(error), todo="repair the line")
            bad.add(found, place=f"line {line}", kind=("", what), at=line)
            continue
        if row is None:
            return
        if row:
            yield row


def _miscounted(path: Path, place: tuple[int, int], cells: int, names: int, bad: Refused) -> None:
    where = "row {} (line {})".format(*place)
    found = Problem(
        what=f"{cells} cells, but the head line names {names} columns",
        where=f"{path}:{where}",
        todo='put cells with commas or line breaks into "quotes"',
    )
    bad.add(found, place=f"{where} with {cells} cells", kind=("", "cells"), at=place[1])


def _names(path: Path, reader: Any) -> list[str]:
    try:
        names: list[str] = next(reader, [])
    except csv.Error as error:
        raise DataError(
            "the head line is not CSV", where=f"{path}:1", why=str(error), todo="repair the line"
        ) from error
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice or not all(name.strip() for name in names):
        what = f"the column {twice[0]!r} is named twice" if twice else "a column has no name"
        raise DataError(what, where=f"{path}:1", todo="name each column once, in the first line")
    return names


def _cells(
    path: Path, names: list[str], rows: list[list[str]], first: int, places: list[tuple[int, int]]
) -> Chunk:
    # CSV does not tell an empty text from none.
    columns = {name: [row[n] or None for row in rows] for n, name in enumerate(names)}
    return Chunk(path=path, columns=columns, first=first, rows=len(rows), places=places)
