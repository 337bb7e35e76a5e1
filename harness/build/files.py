"""Writing whole files or none, and telling whether a generated file is current."""

from __future__ import annotations

import contextlib
import difflib
import errno
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from harness.errors import DiskFullError, Problem, RecordError, StaleError
from harness.profiles import root


def shown(path: Path) -> str:
    """How a path is named in messages: from the repository's root where it is inside."""
    return str(path.relative_to(root())) if path.is_relative_to(root()) else str(path)


@contextlib.contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn the system's refusals to write under ``path`` into errors that say what to do."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFullError(
                "no space left on the disk",
                where=shown(path),
                todo="free some space, then run the same command again",
            ) from None
        if error.errno in (errno.EACCES, errno.EROFS, errno.EPERM):
            raise RecordError(
                f"cannot be written: {error.strerror}", where=shown(path), todo="check its permissions"
            ) from None
        raise


def write(path: Path, text: str) -> None:
    """Write beside, then rename: a reader sees the old file or the new one, never a part."""
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8", newline="\n") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            Path(name).chmod(0o644)
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise


def publish(files: Mapping[Path, str], *, check: bool, command: str) -> list[Path]:
    """Write the files that differ, and return them; with ``check`` write nothing.

    Raises:
        StaleError: with ``check``, one problem a file, with the first lines that differ.
    """
    changed = [path for path, text in files.items() if _current(path) != text]
    if check and changed:
        raise StaleError(*(_stale(path, files[path], command) for path in changed))
    for path in changed:
        write(path, files[path])
    return changed


def _current(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except (FileNotFoundError, UnicodeDecodeError):
        return None


def _stale(path: Path, text: str, command: str) -> Problem:
    old = (_current(path) or "").splitlines()
    lines = list(difflib.unified_diff(old, text.splitlines(), "committed", "generated", n=0, lineterm=""))
    more = f" (and {len(lines) - 8} more lines)" if len(lines) > 8 else ""
    return Problem(
        what="is not what its generator makes today" if path.exists() else "is missing",
        where=shown(path),
        why=(" | ".join(lines[2:8]) + more) if path.exists() else None,
        todo=f"run `{command}` and commit the result",
    )
