"""Any of the known files to one Parquet file that verl reads: streamed, and written whole or not at all."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from harness.data import sources
from harness.data.arrow_rows import batch, schema
from harness.data.layouts import Layout, LayoutName, Refused, detect, rows, used
from harness.errors import DataError
from harness.evidence.files import explain

# What several guides tell people to write and verl reads nowhere: it scores rollouts, not stored answers.


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
    import pyarrow.parquet as pq

    refused, count = Refused(), 0
    layout: Layout | None = None
    columns: tuple[str, ...] = ()
    with pq.ParquetWriter(beside, schema()) as writer:
        for chunk in sources.read(source, split=wanted.split):
            layout = layout or detect(
                chunk,
                name=wanted.layout,
                prompt=wanted.prompt,
                truth=wanted.truth,
                data_source=wanted.data_source,
                split=wanted.split or "train",
            )
            columns = columns or tuple(chunk.columns)
            made = rows(chunk, layout, refused)
            # After the first bad row nothing more is written, but all rows are looked at.
            if not refused.places:
                writer.write_batch(batch(made))
            count += chunk.rows
            if progress is not None:
                progress(count)
    if refused.places:
        raise DataError(*refused.problems())
    if layout is None:
        raise DataError("there are no rows", where=str(source), todo="choose another file")
    left = tuple(name for name in columns if name not in used(layout))
    return Converted(source=source, target=target, rows=count, layout=layout.name, left_out=left)


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
