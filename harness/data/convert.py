"""Any of the known files to one Parquet file that verl reads: streamed, and written whole or not at all."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.data import sources
from harness.data.arrow_rows import batch, schema
from harness.data.chunk import Chunk
from harness.data.extra_info import COLUMN, ExtraInfo
from harness.data.layouts import SOURCE, Layout, LayoutName, detect, rows
from harness.data.refused import Refused
from harness.errors import DataError, Problem
from harness.evidence.files import explain


@dataclass(frozen=True, kw_only=True)
class Converted:
    """One conversion that ended well."""

    source: Path
    target: Path
    rows: int
    layout: LayoutName
    left_out: tuple[str, ...]
    """Columns of which nothing is in the converted rows."""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What the user says of the file; ``layout`` is one of the layouts or ``auto``."""

    layout: str = "auto"
    prompt: str | None = None
    truth: str | None = None
    data_source: str | None = None
    split: str | None = None


def convert(
    source: Path,
    target: Path,
    wanted: Wanted,
    *,
    force: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Converted:
    """Convert ``source`` and write ``target``; an older one is replaced only with ``force``.

    Raises :class:`DataError` with every kind of bad row, or :class:`DiskFullError` or
    :class:`RecordError`; then nothing was written.
    """
    if target.suffix != ".parquet":
        what = f"the result's name must end in .parquet, not {target.suffix or 'in nothing'}"
        raise DataError(what, where=str(target), why="verl chooses its reader by the name")
    if os.path.lexists(target) and not force:
        raise _there(target)
    beside = target.with_name(f".{target.name}.{os.getpid()}.{secrets.token_hex(3)}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        done = _write(source, target, beside, wanted, progress)
        _publish(beside, target, force=force)
    except OSError as error:
        raise explain(error, target, what="write the converted file") from error
    finally:
        if beside.parent.is_dir():
            beside.unlink(missing_ok=True)
    return done


def _write(
    source: Path, target: Path, beside: Path, wanted: Wanted, progress: Callable[[int], None] | None
) -> Converted:
    """One pass over the source; a second one where later rows have more extra_info than the first chunk."""
    extra = ExtraInfo()
    written, done = _pass(source, target, beside, wanted, extra, progress)
    if written != extra.kind:
        _, done = _pass(source, target, beside, wanted, ExtraInfo(extra.kind), progress)
    return done


def _pass(
    source: Path,
    target: Path,
    beside: Path,
    wanted: Wanted,
    extra: ExtraInfo,
    progress: Callable[[int], None] | None,
) -> tuple[Any, Converted]:
    """Write ``beside``; returns the type of extra_info that it was written with, and what was done.

    After the first bad row, or the first that the type does not hold, nothing more is written, but all rows
    are looked at.
    """
    refused, count, columns = Refused(), 0, dict[str, None]()
    layout: Layout | None = None
    written: Any = None
    with ExitStack() as stack:
        writer: Any = None
        try:
            for chunk in sources.read(source, refused=refused, split=wanted.split):
                layout = layout or _layout(chunk, wanted, refused)
                columns |= dict.fromkeys(chunk.columns)
                made, theirs = rows(chunk, layout, refused), extra.take(chunk, refused)
                if writer is None:
                    written = extra.kind
                    writer = stack.enter_context(_writer(beside, written, layout))
                if not refused and extra.kind == written:
                    writer.write_batch(batch(made, theirs))
                count += chunk.rows
                if progress is not None:
                    progress(count)
        except DataError as error:
            extra.tell(refused)
            raise DataError(*refused.problems(), *error.problems) from error
    extra.tell(refused)
    if refused:
        raise DataError(*refused.problems())
    if layout is None:
        raise DataError("there are no rows", where=str(source), todo="choose another file")
    read = layout.columns | (frozenset() if extra.left_out else {COLUMN})
    left = tuple(name for name in columns if name not in read)
    done = Converted(source=source, target=target, rows=count, layout=layout.name, left_out=left)
    return written, done


def _writer(beside: Path, extra: Any, layout: Layout) -> Any:
    import pyarrow.parquet as pq

    return pq.ParquetWriter(beside, schema(extra, solved=layout.solved))


def _layout(chunk: Chunk, wanted: Wanted, refused: Refused) -> Layout:
    """How the file is read; where nothing names a data_source the rows are looked at all the same."""
    layout = detect(
        chunk,
        name=wanted.layout,
        prompt=wanted.prompt,
        truth=wanted.truth,
        data_source=wanted.data_source,
        split=wanted.split or "train",
    )
    if layout.data_source is not None or SOURCE in chunk.columns:
        return layout
    found = Problem(
        what="no data_source",
        where=str(chunk.path),
        why="verl passes it to the reward function, and chooses its own rule by it",
        todo="give --data-source NAME: openai/gsm8k, or a name of yours with a reward of your own",
    )
    refused.add(found, place=str(chunk.path), kind=(SOURCE, "none"), at=-1)
    return replace(layout, data_source="")


def _publish(beside: Path, target: Path, *, force: bool) -> None:
    """Give the finished file its name; without ``force`` never one that exists by now."""
    if force:
        beside.replace(target)
        return
    try:
        os.link(beside, target)
    except FileExistsError:
        raise _there(target) from None
    except OSError as error:
        if error.errno not in {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EXDEV, errno.EMLINK}:
            raise
        # A file system without hard links.
        if os.path.lexists(target):
            raise _there(target) from None
        beside.replace(target)


def _there(target: Path) -> DataError:
    return DataError("the file is there already", where=str(target), todo="choose another name, or --force")
