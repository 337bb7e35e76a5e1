"""Which version is newer, and what changed between two locks. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from packaging.version import InvalidVersion, Version

from harness.build.base_lock import Package
from harness.build.index import Release
from harness.build.lockfile import Pin


@dataclass(frozen=True, kw_only=True, order=True)
class Moved:
    """A package whose version is another one; an empty version is absence."""

    name: str
    before: str
    after: str

    def line(self) -> str:
        """For people."""
        return f"{self.name} {self.before or '(new)'} -> {self.after or '(gone)'}"


def newest(current: str, releases: Iterable[Release]) -> Release | None:
    """The newest final release after ``current``, if there is one. A local part (``+cpu``) does not count."""
    now = _version(current.partition("+")[0])
    found = [(version, one) for one in releases if (version := _version(one.version)) is not None]
    final = [pair for pair in found if not (pair[0].is_prerelease or pair[0].local)]
    if now is None or not final:
        return None
    version, release = max(final, key=lambda pair: pair[0])
    return release if version > now else None


def newest_tag(current: str, tags: Iterable[str]) -> str | None:
    """The newest tag after ``current`` of the form ``v1.2.3``."""
    numbered = {tag: tuple(map(int, m.groups())) for tag in tags if (m := _TAG.fullmatch(tag))}
    now = _TAG.fullmatch(current)
    if now is None or not numbered:
        return None
    best = max(numbered, key=lambda tag: numbered[tag])
    return best if numbered[best] > tuple(map(int, now.groups())) else None


_TAG = re.compile(r"v(\d+)\.(\d+)\.(\d+)")


def moved(before: Mapping[str, Pin], after: Mapping[str, Pin]) -> tuple[Moved, ...]:
    """What a new lock changes."""
    return _moved(
        {name: pin.version for name, pin in before.items()},
        {name: pin.version for name, pin in after.items()},
    )


def moved_packages(before: Iterable[Package], after: Iterable[Package]) -> tuple[Moved, ...]:
    """What a new lock of the base changes."""
    return _moved({one.name: one.version for one in before}, {one.name: one.version for one in after})


def _moved(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[Moved, ...]:
    return tuple(
        Moved(name=name, before=before.get(name, ""), after=after.get(name, ""))
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    )


def _version(text: str) -> Version | None:
    try:
        return Version(text)
    except InvalidVersion:
        return None
