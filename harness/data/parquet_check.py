"""Would verl read this Parquet file as it is meant? All problems of one file are reported at once.

The rows are streamed batch by batch, so a file larger than memory can be checked.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.adapt.verls import here
from harness.data import file_kind, parquet_schema, text_bytes
from harness.errors import DataError, Problem

_BATCH = 1024
_BUFFER_BYTES = 1 << 20
_SHOWN = 3
_READ = ("data_source", "reward_model.ground_truth", "reward_model.style", "extra_info.index")
_NOT_UTF8 = "is not UTF-8"
_DROPPED = (
    "verl drops such a row (filter_overlong_prompts) or fails at it in the middle of training",
    "repair or remove these rows",
)
_REASONS = {
    _NOT_UTF8: (
        "verl's reader ends in a UnicodeDecodeError at such a row, whatever the column is for",
        "write the file again from texts: bytes of another encoding were stored as they are, such as LATIN1",
    )
}


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What a good file holds. ``longest`` is the prompt with the most characters, at ``longest_row``."""

    path: Path
    rows: int
    columns: tuple[str, ...]
    data_sources: dict[str, int]
    first: tuple[dict[str, Any], ...]
    longest: tuple[dict[str, Any], ...]
    longest_row: int


@dataclass(kw_only=True)
class _Seen:
    """What the stream has shown so far. Row numbers count from 0, as in verl."""

    rows: int = 0
    bad: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    sources: Counter[str] = field(default_factory=Counter)
    first: list[dict[str, Any]] = field(default_factory=list)
    longest: list[dict[str, Any]] = field(default_factory=list)
    longest_row: int = 0
    longest_size: int = -1

    def note(self, column: str, what: str, rows: list[int]) -> None:
        """Count bad rows, and keep the first few for the message."""
        if rows:
            self.counts[column, what] += len(rows)
            kept = self.bad.setdefault((column, what), [])
            kept.extend(self.rows + row for row in rows[: _SHOWN - len(kept)])


def check(
    path: Path, *, prompt_key: str = "prompt", watch: Callable[[int, Any], None] | None = None
) -> Summary:
    """Check schema and rows; raises :class:`DataError` with each problem's file, row and column.

    ``watch`` is called with each batch (``pyarrow.RecordBatch``) and the number of its first row, also
    where rows are bad: who wants to look further needs no second pass.
    """
    import pyarrow as pa

    with opened(path) as file:
        schema = file.schema_arrow
        problems = parquet_schema.problems(schema, path=str(path), prompt_key=prompt_key)
        if file.metadata.num_rows == 0:
            problems.append(Problem(what="the file has no rows", where=str(path), todo="choose another file"))
        if problems:
            raise DataError(*problems)
        seen = _Seen()
        try:
            for read in _batches(file, prompt_key):
                batch, broken = text_bytes.mended(read)
                for column, rows in broken.items():
                    seen.note(column, _NOT_UTF8, rows)
                if watch is not None:
                    watch(seen.rows, batch)
                _look(batch, prompt_key, seen)
        except (pa.ArrowException, OSError) as error:
            raise DataError(
                "the file is damaged",
                where=f"{path}:row {seen.rows} or later",
                why=str(error),
                todo="copy it again",
            ) from error
    if seen.bad:
        raise DataError(*_row_problems(path, seen))
    return Summary(
        path=path,
        rows=seen.rows,
        columns=tuple(schema.names),
        data_sources=dict(seen.sources),
        first=tuple(seen.first),
        longest=tuple(seen.longest),
        longest_row=seen.longest_row,
    )


def opened(path: Path) -> Any:
    """Open a ``pyarrow.parquet.ParquetFile``; raises :class:`DataError` for what is none."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if path.is_dir() or not path.exists():
        what = "this is a folder, not a Parquet file" if path.is_dir() else "there is no such file"
        raise DataError(what, where=str(path), todo="give the path of one Parquet file")
    try:
        return pq.ParquetFile(path, buffer_size=_BUFFER_BYTES, pre_buffer=False)
    except (pa.ArrowException, OSError) as error:
        raise DataError(_unreadable(path), where=str(path), why=str(error), todo=_remedy(path)) from error


def _unreadable(path: Path) -> str:
    """Tell a truncated Parquet file from a file of another kind: both ends should say ``PAR1``."""
    if not os.access(path, os.R_OK):
        return "the file cannot be read"
    cut = file_kind.holds_parquet(path)
    return "the Parquet file is truncated or damaged" if cut else "this is not a Parquet file"


def _remedy(path: Path) -> str:
    other = file_kind.finding(path, verl=here())
    return (
        str(other.todo)
        if other and not file_kind.holds_parquet(path)
        else "copy or download it again, and compare its size"
    )


def _batches(file: Any, prompt_key: str) -> Iterator[Any]:
    # verl turns a row's every column into Python, so texts that it has no use for must be texts, too.
    texts = frozenset(text_bytes.leaves(file.schema))
    paths = [file.schema.column(number).path for number in range(len(file.schema))]
    wanted = (prompt_key, *_READ)
    columns = [
        path
        for path in paths
        if path in texts or any(path == name or path.startswith(f"{name}.") for name in wanted)
    ]
    yield from file.iter_batches(batch_size=_BATCH, columns=columns, use_threads=False)


def _look(batch: Any, prompt_key: str, seen: _Seen) -> None:
    """Add one batch's rows to what was seen."""
    import pyarrow as pa
    import pyarrow.compute as pc

    prompts, sources = batch.column(prompt_key), batch.column("data_source")
    truths = pc.struct_field(batch.column("reward_model"), "ground_truth")
    lengths = pc.list_value_length(prompts)
    seen.note("data_source", "is null", _rows(pc.is_null(sources)))
    seen.note("reward_model.ground_truth", "is null", _rows(pc.is_null(truths)))
    seen.note(prompt_key, "is null", _rows(pc.is_null(prompts)))
    seen.note(prompt_key, "has no messages", _rows(pc.equal(lengths, 0)))
    parents, messages = pc.list_parent_indices(prompts), pc.list_flatten(prompts)
    for part in ("role", "content"):
        empty = pc.is_null(pc.struct_field(messages, part))
        seen.note(
            prompt_key, f"has a message without {part}", sorted(set(pc.filter(parents, empty).to_pylist()))
        )
    for entry in pc.value_counts(sources).to_pylist():
        seen.sources[str(entry["values"])] += entry["counts"]
    if not seen.first and len(prompts):
        seen.first = prompts[0].as_py() or []
    content = pc.struct_field(messages, "content")
    if len(content) and parquet_schema.is_string(content.type):
        table = pa.table({"row": parents, "size": pc.utf8_length(pc.fill_null(content, ""))})
        _keep_longest(table.group_by("row").aggregate([("size", "sum")]), prompts, seen)
    seen.rows += batch.num_rows


def _keep_longest(sizes: Any, prompts: Any, seen: _Seen) -> None:
    best = sizes.sort_by([("size_sum", "descending"), ("row", "ascending")]).slice(0, 1).to_pylist()[0]
    if best["size_sum"] > seen.longest_size:
        seen.longest_size, seen.longest_row = best["size_sum"], seen.rows + best["row"]
        seen.longest = prompts[best["row"]].as_py()


def _rows(mask: Any) -> list[int]:
    import pyarrow.compute as pc

    return list(pc.indices_nonzero(pc.fill_null(mask, False)).to_pylist())


def _row_problems(path: Path, seen: _Seen) -> Iterator[Problem]:
    for (column, what), rows in seen.bad.items():
        count = seen.counts[column, what]
        more = f" (and {count - len(rows)} more rows)" if count > len(rows) else ""
        why, todo = _REASONS.get(what, _DROPPED)
        where = f"{path}:row {', '.join(map(str, rows))}:{column}"
        yield Problem(what=f"{column} {what}{more}", where=where, why=why, todo=todo)
