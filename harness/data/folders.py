"""A folder appears whole or not at all: it is filled beside its place, then moved there."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.evidence.files import explain


@contextmanager
def whole(folder: Path, *, what: str) -> Iterator[Path]:
    """Yield an empty folder that takes the place of ``folder`` when the block ends well.

    An older ``folder`` is replaced. Raises :class:`DiskFullError` or :class:`RecordError` for what the
    operating system refuses; ``what`` completes "cannot ...".
    """
    beside = folder.with_name(f".{folder.name}.{os.getpid()}.{secrets.token_hex(3)}")
    try:
        beside.mkdir(parents=True)
        yield beside
        if folder.is_symlink() or folder.is_file():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))
        if folder.exists():
            old = beside.with_name(beside.name + ".old")
            folder.rename(old)
            beside.rename(folder)
            shutil.rmtree(old)
        else:
            beside.rename(folder)
    except OSError as error:
        raise explain(error, folder, what=what) from error
    except Exception as error:
        # safetensors reports a full disk as an error of its own, with the system's number in its text.
        if f"os error {errno.ENOSPC}" in str(error):
            full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))
            raise explain(full, folder, what=what) from error
        raise
    finally:
        shutil.rmtree(beside, ignore_errors=True)
