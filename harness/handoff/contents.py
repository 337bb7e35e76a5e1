"""What an image's archive holds: its Python distributions and its Debian packages, read from the layers."""

from __future__ import annotations

import email
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from email.message import Message
from pathlib import Path

from packaging.utils import canonicalize_name

from harness.build.base_lock import Package
from harness.build.image.entries import Entry
from harness.build.image.saved import open_saved
from harness.build.lockfile import Pin
from harness.errors import HandoffError, ImageError, Problem

_METADATA = re.compile(r"opt/verlock/lib/python3\.\d+/site-packages/[^/]+\.dist-info/METADATA")
_STATUS = "var/lib/dpkg/status"
_OSI = "License :: OSI Approved :: "


@dataclass(frozen=True, kw_only=True, order=True)
class Distribution:
    """One installed Python distribution."""

    name: str
    version: str
    expression: str | None
    """Its licence as an SPDX expression, where it says so."""
    licence: str | None
    """Else as its classifier names it."""


@dataclass(frozen=True, kw_only=True)
class Contents:
    """All that is installed in an image."""

    distributions: tuple[Distribution, ...]
    packages: tuple[tuple[str, str, str], ...]
    """Debian packages: name, version, architecture."""


def read(archive: Path) -> Contents:
    """Raises :class:`ImageError` where the archive is no image, or holds no environment of verlock."""
    with open_saved(archive) as saved:
        tree: Mapping[str, Entry] = {}
        for tree in saved.trees():  # noqa: B007 - the last one is what a container sees
            pass
        distributions = [_distribution(_text(e)) for path, e in tree.items() if _METADATA.fullmatch(path)]
        status = tree.get(_STATUS)
        if not distributions or status is None:
            raise ImageError(
                "the archive holds no environment of verlock", where=str(archive), todo="verlock build"
            )
        packages = sorted(_packages(_text(status)))
    return Contents(
        distributions=tuple(sorted(distributions, key=lambda d: d.name)), packages=tuple(packages)
    )


def compare(contents: Contents, pins: Mapping[str, Pin], base: Mapping[str, Package], *, where: str) -> None:
    """Refuse an archive whose contents are not those of the locks.

    Raises:
        HandoffError: with each distribution or package that is missing, too many, or of another version.
    """
    python = {d.name: d.version for d in contents.distributions}
    debian = {name: version for name, version, _machine in contents.packages}
    locked = {name: pin.version for name, pin in pins.items()}
    problems = [
        *_differences(python, locked, where),
        *_differences(debian, {name: package.version for name, package in base.items()}, where),
    ]
    if problems:
        raise HandoffError(*problems)


def _differences(found: Mapping[str, str], locked: Mapping[str, str], where: str) -> Iterator[Problem]:
    for name in sorted({*found, *locked}):
        here, there = found.get(name, "none"), locked.get(name, "none")
        if here != there:
            yield Problem(
                what=f"{name}: {here} in the archive, {there} in the lock",
                where=where,
                todo="build the image again: what is handed on must be what is locked",
            )


def _text(entry: Entry) -> str:
    return b"".join(entry.content.chunks() if entry.content else ()).decode("utf-8", errors="replace")


def _distribution(text: str) -> Distribution:
    message: Message = email.message_from_string(text)
    classified = [c.removeprefix(_OSI) for c in message.get_all("Classifier", []) if c.startswith(_OSI)]
    return Distribution(
        name=str(canonicalize_name(message["Name"])),
        version=str(message["Version"]),
        expression=message.get("License-Expression"),
        licence=classified[0] if classified else None,
    )


def _packages(status: str) -> Iterator[tuple[str, str, str]]:
    for paragraph in status.split("\n\n"):
        fields = email.message_from_string(paragraph)
        if fields.get("Status", "").endswith(" installed"):
            yield fields["Package"], fields["Version"], fields["Architecture"]
