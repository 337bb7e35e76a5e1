"""Rows from whatever file people have, a chunk at a time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from harness.data import text_files
from harness.data.chunk import ROWS, Chunk
from harness.data.refused import Refused
from harness.errors import DataError


def read(path: Path, *, refused: Refused, split: str | None = None) -> Iterator[Chunk]:
    """Stream ``path``: JSONL, CSV, TSV, Parquet, or a folder that ``datasets`` saved (with its ``split``).

    Lines of a text file that cannot be read are noted in ``refused`` and passed over, and texts of a Parquet
    file that are not UTF-8; for anything else :class:`DataError` is raised.
    """
    if path.is_dir():
        return _saved_dataset(path, split)
    if not path.exists():
        raise DataError("there is no such file", where=str(path), todo="check the path")
    if not path.is_file():
        raise DataError("this is not a file", where=str(path), todo="give a regular file")
    match path.suffix.lower():
        case ".jsonl" | ".json" | ".ndjson":
            return text_files.lines(path, refused)
        case ".csv" | ".tsv":
            return text_files.separated(path, refused)
        case ".parquet":
            return _parquet(path, refused)
    raise DataError(
        f"a file that ends in {path.suffix or 'nothing'!r} is not known",
        where=str(path),
        todo="give .jsonl, .csv, .tsv, .parquet, or a folder made by datasets' save_to_disk",
    )


def _parquet(path: Path, refused: Refused) -> Iterator[Chunk]:
    import pyarrow as pa

    from harness.data import parquet_check, text_bytes

    first = 0
    with parquet_check.opened(path) as file:
        try:
            for read in file.iter_batches(batch_size=ROWS, use_threads=False):
                batch, broken = text_bytes.mended(read)
                columns = {name: batch.column(name).to_pylist() for name in batch.schema.names}
                chunk = Chunk(path=path, columns=columns, first=first, rows=batch.num_rows)
                for column, rows in broken.items():
                    for row in rows:
                        refused.note(chunk, row, column, "is not UTF-8")
                yield chunk
                first += batch.num_rows
        except (pa.ArrowException, OSError) as error:
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
