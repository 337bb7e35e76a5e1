"""`verlock data convert` and `check` on a million rows, against pandas: rows a second and peak memory."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from measure import Aim, Case
from place import Place, checked

from harness.data import gsm8k

ROWS = 1_000_000
PROGRAM = Path(__file__).with_name("data_rows.py")
# pandas with a million rows needs gigabytes; ours must not grow with the file but for 12 bytes a row.
MOST_MB = 400


def cases(place: Place) -> Iterator[Case]:
    """Rates first, then memory: each side in a process of its own, so that its peak is its own."""
    folder = place.folder("data")
    lines = write(folder / "rows.jsonl", ROWS)
    table = folder / "rows.parquet"
    measure("ours_convert", lines, table, "rows/s", root=place.root)
    for word, source, target in (("convert", lines, folder / "out.parquet"), ("check", table, table)):
        sides = {"verlock": f"ours_{word}", "pandas": f"pandas_{word}"}
        for unit, label in (("rows/s", "rate"), ("MB", "memory")):
            calls: dict[str, Callable[[], float]] = {
                name: partial(
                    measure, what, source, target, "peak MB" if unit == "MB" else unit, root=place.root
                )
                for name, what in sides.items()
            }
            yield Case(
                id=f"data-{word}-{label}",
                what=f"data {word}, a million rows: {'peak memory' if unit == 'MB' else 'rows a second'}",
                unit=unit,
                sides=calls,
                rounds=2,
                aim=Aim(at_most=MOST_MB) if unit == "MB" else None,
            )


def write(path: Path, rows: int) -> Path:
    """Word problems in the GSM8K layout, one object a line."""
    with path.open("w", encoding="utf-8") as file:
        for number, question in enumerate(gsm8k.make(rows, seed=1)):
            text = f"Problem {number}. {question.text}"
            file.write(json.dumps({"question": text, "answer": question.solution}) + "\n")
    return path


def measure(what: str, source: Path, target: Path, figure: str, *, root: Path) -> float:
    """One run; the figure that it prints."""
    environment = {**os.environ, "PYTHONPATH": str(root)}
    output = checked(
        [sys.executable, "-P", PROGRAM, what, source, target], cwd=target.parent, env=environment
    )
    return float(next(line for line in output.splitlines() if line.startswith(figure)).split(": ")[1])
