"""The first rows of a user's files that a small run can hold, as one file of the same columns."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.data import chat_check, gsm8k, parquet_check
from harness.errors import DataError
from harness.evidence.files import explain

MEDIA = frozenset({"images", "videos", "audios", "image", "video", "audio"})
_BATCH = 64


@dataclass(frozen=True, kw_only=True)
class Kept:
    """The file, its rows, their longest prompt in tokens, and what is not in it."""

    path: Path
    rows: int
    longest: int
    passed_over: int
    dropped: tuple[str, ...]


def keep(
    sources: Sequence[Path],
    folder: Path,
    *,
    rows: int,
    tokenizer: Any,
    limit: int,
    prompt_key: str = "prompt",
    media: Sequence[str] = (),
) -> Kept:
    """Write the first ``rows`` whose prompt has at most ``limit`` tokens; images and the like are left out.

    The file is named by its content, so that a run's record stays true. Raises :class:`DataError` where no
    row fits.
    """
    import pyarrow as pa

    found: list[Any] = []
    sizes: list[int] = []
    over = 0
    for batch in _batches(sources):
        lengths = [_tokens(tokenizer, messages) for messages in batch.column(prompt_key).to_pylist()]
        fits = [row for row, size in enumerate(lengths) if size <= limit][: rows - len(sizes)]
        over += sum(size > limit for size in lengths[: (fits[-1] + 1) if fits else len(lengths)])
        found.append(batch.take(pa.array(fits, pa.int64())))
        sizes += [lengths[row] for row in fits]
        if len(sizes) == rows:
            break
    if not sizes:
        raise DataError(
            f"no row has a prompt of at most {limit} tokens",
            where=", ".join(map(str, sources)),
            why="a run on this machine holds no longer ones",
            todo="give a file with some short rows",
        )
    # Files of one list may have different columns; the first one's are kept.
    table = pa.Table.from_batches(
        [part for part in found if part.schema.equals(found[0].schema) and len(part)]
    )
    dropped = tuple(name for name in table.column_names if name in MEDIA | set(media))
    path = _write(table.drop_columns(list(dropped)), folder)
    return Kept(path=path, rows=len(table), longest=max(sizes), passed_over=over, dropped=dropped)


def stand_in(folder: Path, *, rows: int) -> Path:
    """Word problems in verl's GSM8K layout, for a command whose data is elsewhere."""
    return gsm8k.write(folder / f"stand-in-gsm8k-{rows}.parquet", gsm8k.make(rows, seed=1))


def _batches(sources: Sequence[Path]) -> Iterator[Any]:
    for source in sources:
        with parquet_check.opened(source) as file:
            yield from file.iter_batches(batch_size=_BATCH, use_threads=False)


def _tokens(tokenizer: Any, messages: Any) -> int:
    text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    return len(chat_check.tokens(tokenizer, [text])[0])


def _write(table: Any, folder: Path) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    buffer = pa.BufferOutputStream()
    pq.write_table(table, buffer)
    content = buffer.getvalue().to_pybytes()
    path = folder / f"rows-{hashlib.sha256(content).hexdigest()[:12]}.parquet"
    beside = path.with_suffix(".new")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        beside.write_bytes(content)
        beside.replace(path)
    except OSError as error:
        raise explain(error, path, what="write the first rows") from error
    return path
