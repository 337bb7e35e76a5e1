"""The pins of a profile's lock, read from the rendered file."""

from __future__ import annotations

import platform
import re
from pathlib import Path

from harness.errors import LockError
from harness.profiles.load import root
from harness.profiles.model import Profile

_PIN = re.compile(r"^(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)==(?P<version>[^\s;\\]+)", re.MULTILINE)


def lock_file(profile: Profile) -> Path:
    """The lock that fits this machine."""
    target = profile.target(platform.system(), platform.machine())
    return root() / "docker" / "rendered" / profile.name / target.file


def pins(profile: Profile) -> dict[str, str]:
    """Name to version of everything in the lock. Raises :class:`LockError` when there is none."""
    path = lock_file(profile)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise LockError(
            "the lock cannot be read", where=str(path), why=str(error), todo="run: nox -s lock"
        ) from error
    return {match["name"].lower(): match["version"] for match in _PIN.finditer(text)}
