"""Whole files or none: write beside, then replace; and operating system errors in plain words.

There is no fsync: a killed process loses nothing that it has written, and a dozen fsyncs on a busy
laptop disk cost seconds. ``close`` reports what a network file system noticed late.
"""

from __future__ import annotations

import errno
import os
import secrets
from pathlib import Path

from harness.errors import DiskFullError, RecordError, VerlockError

FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


def explain(error: OSError, path: Path, *, what: str) -> VerlockError:
    """Turn an operating system error into ours: no space is one class, all else another.

    ``what`` completes "cannot ...", for example "write the run record".
    """
    if error.errno in FULL:
        return DiskFullError(
            f"no space left to {what}",
            where=str(path),
            why=f"the file system of {path.parent} is full or its quota is used up ({error.strerror})",
            todo="free some space, or choose a folder on another disk",
        )
    return RecordError(
        f"cannot {what}",
        where=str(error.filename or path),
        why=f"the operating system says: {error.strerror or error}",
        todo=_remedy(error),
    )


def _remedy(error: OSError) -> str:
    """Say what to do about the usual reasons why something cannot be written or read."""
    match error.errno:
        case errno.ENOTDIR | errno.EEXIST:
            return "a file is where a folder is needed: move it away, or choose another folder"
        case errno.EISDIR | errno.ENOTEMPTY:
            return "a folder is where a file or link is needed: move it away, or choose another folder"
        case errno.EROFS:
            return "the file system is mounted read-only: choose a folder that can be written"
        case errno.ENOENT:
            return "check the path: it is not there"
        case _:
            return "choose a folder that you may write, or change its owner or mode"


def replace_text(path: Path, text: str, *, what: str) -> None:
    """Write ``text`` so that a reader sees the old file or the new one, never a part.

    Raises :class:`DiskFullError` or :class:`RecordError`; the old file is then untouched and the
    half-written one beside it is gone.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(3)}")
    try:
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True) if beside.parent.is_dir() else None
        raise explain(error, path, what=what) from error


def replace_link(link: Path, target: str, *, what: str) -> None:
    """Point ``link`` at ``target`` in one step; raises :class:`RecordError` if that cannot be done."""
    beside = link.with_name(f".{link.name}.{os.getpid()}.{secrets.token_hex(3)}")
    try:
        beside.symlink_to(target)
        beside.replace(link)
    except OSError as error:
        beside.unlink(missing_ok=True) if beside.parent.is_dir() else None
        raise explain(error, link, what=what) from error
