"""Which files verl reads, by their names; only Parquet is looked at here, and the others can be converted."""

from __future__ import annotations

import shlex
from pathlib import Path

from harness.adapt import verls
from harness.data.finding import Finding

NOT_CHECKED = "file-not-checked"
_CONVERTED = frozenset({".json", ".jsonl", ".ndjson", ".csv", ".tsv"})


def finding(path: Path, *, verl: str) -> Finding | None:
    """What is to be said of a file that is no Parquet file by name and content; none of one that is.

    A file that verl reads and nobody looks at is a fault to who asked for a check of its rows.
    """
    if path.suffix == ".parquet" or not path.is_file():
        return None
    endings = verls.data_endings(verl)
    read = path.suffix in endings
    choice = f"RLHFDataset chooses the reader by the name: {', '.join(endings)}, else ValueError"
    if holds_parquet(path):
        renamed = shlex.join(["mv", str(path), str(path.with_suffix(".parquet"))])
        return Finding(
            id="data-suffix",
            key=str(path),
            what=f"it is Parquet, and verl {verl} {'takes it for JSON' if read else 'refuses its name'}",
            why=choice,
            todo=f"rename it: {renamed}",
        )
    if read:
        return Finding(
            id=NOT_CHECKED,
            key=str(path),
            what=f"verl {verl} reads a {path.suffix} file, but its rows were not looked at",
            why="only Parquet is; verl gives it to datasets, which guesses the types of its columns",
            todo=convert(path),
        )
    return Finding(
        id="data-suffix",
        key=str(path),
        what=f"verl {verl} reads no file that ends in {path.suffix or 'nothing'}",
        why=choice,
        todo=convert(path) if path.suffix.lower() in _CONVERTED else "give a Parquet file",
    )


def convert(path: Path) -> str:
    """The command that makes of ``path`` what verl reads and this project checks."""
    target = path.with_suffix(".parquet")
    if target == path:
        target = path.with_name(f"{path.stem}-verl.parquet")
    return f"convert it: {shlex.join(['verlock', 'data', 'convert', str(path), str(target)])}"


def holds_parquet(path: Path) -> bool:
    """Whether the file begins as Parquet files do."""
    try:
        with path.open("rb") as file:
            return file.read(4) == b"PAR1"
    except OSError:
        return False
