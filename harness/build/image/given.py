"""The user's own files in a command: found, read-only inside, and under the same path there as here.

So what a record, a message or an override says of a path is true on both sides. What cannot be had inside is
refused before anything starts: a file that is silently missing there would be looked for in vain.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from harness.errors import OverrideError, Problem
from harness.evidence.given import named

# The image's own, and the kernel's: a folder laid over them would break the run.
_TAKEN = frozenset(
    ["/", "/bin", "/etc", "/lib", "/lib64", "/opt", "/sbin", "/tmp", "/usr", "/usr/bin", "/var"]  # noqa: S108
)
_CLOSED = ("/dev", "/proc", "/sys", "/opt/verlock")


def override_paths(overrides: Iterable[str]) -> tuple[list[Path], list[Problem]]:
    """Files and folders of this machine that Hydra overrides name, and those that cannot be taken along."""
    found: list[Path] = []
    problems: list[Problem] = []
    for text, name in named(overrides):
        if name.startswith("/"):
            found.append(Path(name))
        else:
            problems.append(
                Problem(
                    what=f"{name} is a path of this machine that means another one inside the image",
                    where=text,
                    todo=f"write it whole: {Path(name).expanduser().resolve()}",
                )
            )
    return found, problems


def needed(paths: Iterable[Path]) -> tuple[Path, ...]:
    """The paths, and what links inside them lead to: a model folder of Hugging Face's cache is all links."""
    all_paths = dict.fromkeys(one for path in paths for one in (path, *_led_to(path)))
    return tuple(
        path for path in all_paths if not any(path.is_relative_to(o) for o in all_paths if o != path)
    )


def problems(paths: Iterable[Path], *, as_root: bool) -> Iterator[Problem]:
    """What keeps paths from being seen inside."""
    for path in paths:
        if str(path) in _TAKEN or any(path.is_relative_to(place) for place in _CLOSED):
            yield Problem(
                what="this folder cannot be laid into the image",
                where=str(path),
                why="the image has a folder of its own there",
                todo="move your files to another folder",
            )
        # Root does not go along: inside, user 1000 reads them.
        elif as_root and not path.stat().st_mode & (0o005 if path.is_dir() else 0o004):
            yield Problem(
                what="cannot be read inside the image",
                where=str(path),
                why="root's own files are read there by user 1000, and others may not read this one",
                todo=f"chmod -R o+rX {path}",
            )


def refuse(found: Iterable[Problem]) -> None:
    """Raise if there is a problem.

    Raises:
        OverrideError: with all of them.
    """
    if told := list(found):
        raise OverrideError(*told)


def _led_to(path: Path) -> Iterator[Path]:
    if path.is_symlink():
        yield path.resolve()
    for folder, folders, files in os.walk(path):
        for name in (*folders, *files):
            one = Path(folder, name)
            if one.is_symlink() and one.exists() and not one.resolve().is_relative_to(path):
                yield one.resolve()
