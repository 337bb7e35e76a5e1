"""Notices saves: watchfiles (the system's own notices) on the checkout, and beside the user's other files.

A file is watched through its folder, because an editor that writes beside and renames replaces the file, and
a watch on the old one would see nothing more.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from harness.errors import ToolMissingError

# A save is seldom one write: what comes within so many milliseconds is one change.
_STEP_MS, _DEBOUNCE_MS = 30, 200
# A clock that was set, or a file that was moved here with its old time: then the notice counts.
_TRUSTED_SECONDS = 5.0
_SUFFIXES = frozenset({".py", ".yaml", ".yml", ".json", ".jinja", ".jinja2", ".txt", ".toml", ".cfg"})
_FOLDERS = frozenset({".git", "__pycache__", ".hg", ".idea", ".vscode", ".mypy_cache", ".ruff_cache"})


@dataclass(frozen=True, kw_only=True)
class Saved:
    """Files that changed together. ``when`` is the monotonic time of the last write among them."""

    paths: frozenset[Path]
    when: float

    def plus(self, other: Saved) -> Saved:
        """Both; the later save is the one that a verdict answers."""
        return Saved(paths=self.paths | other.paths, when=max(self.when, other.when))


@dataclass(frozen=True, kw_only=True)
class Watched:
    """``trees`` with all below them, and single ``files`` (or the files directly in a folder)."""

    trees: tuple[Path, ...] = ()
    files: tuple[Path, ...] = ()

    def code(self, paths: Iterable[Path]) -> bool:
        """Whether one of them is in a tree: those are imported."""
        return any(path.is_relative_to(tree) for path in paths for tree in self.trees)

    def counts(self, path: Path) -> bool:
        """Whether a change of this path is the user's: no byte code, no editor's own files."""
        if path in self.files or path.parent in self.files:
            return not path.name.startswith(".")
        for tree in self.trees:
            if path.is_relative_to(tree):
                below = path.relative_to(tree)
                return path.suffix in _SUFFIXES and not (
                    _FOLDERS & set(below.parts) or path.name.startswith((".", "#"))
                )
        return False


class Changes:
    """Threads that put each :class:`Saved` into ``into``; a context manager."""

    def __init__(self, watched: Watched, into: queue.Queue[Saved]) -> None:
        """Two watches, because only trees are watched with all that is below them."""
        self._watched, self._into = watched, into
        self._stop = threading.Event()
        folders = {file if file.is_dir() else file.parent for file in watched.files}
        self._threads = [
            threading.Thread(target=self._watch, args=(sorted(paths), recursive), daemon=True)
            for paths, recursive in ((set(watched.trees), True), (folders, False))
            if paths
        ]

    def __enter__(self) -> Changes:
        """Begin; raises :class:`ToolMissingError` where watchfiles is not installed."""
        try:
            import watchfiles  # noqa: F401 - only the host side of verlock has it
        except ImportError:
            raise ToolMissingError(
                "watchfiles is not installed",
                why="`verlock watch` runs from the host side, outside of the environment that it watches in",
                todo="pip install 'verlock[host]'",
            ) from None
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End; the threads look at the event every now and then, and need not be waited for."""
        self._stop.set()

    def _watch(self, paths: list[Path], recursive: bool) -> None:
        import watchfiles

        for changes in watchfiles.watch(
            *paths,
            watch_filter=lambda _change, path: self._watched.counts(Path(path)),
            step=_STEP_MS,
            debounce=_DEBOUNCE_MS,
            rust_timeout=500,
            stop_event=self._stop,
            recursive=recursive,
            raise_interrupt=False,
        ):
            found = frozenset(Path(path) for _change, path in changes)
            self._into.put(Saved(paths=found, when=written(found, wall=time.time(), now=time.monotonic())))


def written(paths: Iterable[Path], *, wall: float, now: float) -> float:
    """The monotonic time of the last write; of files that are gone, or whose time cannot be, the notice's."""
    times = []
    for path in paths:
        try:
            times.append(path.stat().st_mtime)
        except OSError:
            continue
    age = wall - max(times, default=wall)
    return now - age if 0 <= age < _TRUSTED_SECONDS else now
