"""The pins of a profile's lock, and the marker that says which locks an environment was made from."""

from __future__ import annotations

import hashlib
import json
import platform
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.errors import LockError, Problem
from harness.profiles.load import root
from harness.profiles.model import Profile

MARKER = "verlock-environment.json"
_PIN = re.compile(r"^(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)==(?P<version>[^\s;\\]+)", re.MULTILINE)


def home(profile: Profile) -> Path:
    """The folder of the profile's locks."""
    return root() / "docker" / "rendered" / profile.home


def lock_file(profile: Profile) -> Path:
    """The lock that fits this machine."""
    return home(profile) / profile.target(platform.system(), platform.machine()).file


def named(profile: Profile) -> dict[str, str]:
    """What a run's record says of its lock: verl's release, the file, and its SHA-256."""
    path = lock_file(profile)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return {
        "verl": profile.software.verl,
        "file": path.relative_to(root()).as_posix(),
        "sha256": digest,
    }


def pins(profile: Profile, *more: str) -> dict[str, str]:
    """Name to version of everything in the lock, and in ``more`` files beside it.

    Raises :class:`LockError` when one of them is not there.
    """
    found: dict[str, str] = {}
    for path in (lock_file(profile), *(home(profile) / name for name in more)):
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            raise LockError(
                "the lock cannot be read", where=str(path), why=str(error), todo="run: nox -s lock"
            ) from error
        found |= {match["name"].lower(): match["version"] for match in _PIN.finditer(text)}
    return found


def marker() -> dict[str, Any] | None:
    """What this interpreter's environment says of itself; none where it is no environment of verlock."""
    try:
        document = json.loads(Path(sys.prefix, MARKER).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return document if isinstance(document, dict) and isinstance(document.get("locks"), dict) else None


def altered(profile: Profile, made: dict[str, Any]) -> Iterator[Problem]:
    """Locks that are not, to the byte, those that the environment with the marker ``made`` was made from."""
    if made.get("profile") != profile.name:
        yield Problem(
            what=f"this environment was made for the profile {made.get('profile')}, not {profile.name}",
            where=str(Path(sys.prefix, MARKER)),
            todo=f"use the environment or the image of {profile.name}",
        )
        return
    for name, digest in sorted(made["locks"].items()):
        path = home(profile) / name
        try:
            now = hashlib.sha256(path.read_bytes()).hexdigest()
        except OSError as error:
            now = error.strerror or "unreadable"
        if now != digest:
            yield Problem(
                what="the lock was altered after the environment was made from it",
                where=str(path),
                why=f"its SHA-256 is {now}, and the environment was made from {digest}",
                todo="restore the lock, or make the environment or the image anew",
            )
