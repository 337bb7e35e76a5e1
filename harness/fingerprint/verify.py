"""The whole check, once on the driver, before any work: nothing is believed, all is read again.

- the lock is, to the byte, the one that the environment or image was made from (the marker);
- every distribution has the locked name and version (its METADATA), and no other is there;
- each file of torch, verl and ray has the hash that the wheel's RECORD gives it: 15,549 files, 862 MiB,
  1.2 s with two threads on 2 cores;
- in an image: the files of the harness, the profiles, lock and overrides are those that it was built from.

Not covered: byte code in ``__pycache__``, which Python checks against the source's time in an environment
and not at all in an image; and the files of other distributions, of which only the existence is checked.
"""

from __future__ import annotations

import hashlib
import os
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.machinery import PathFinder
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

import harness
from harness.errors import EnvironmentDiffersError, Problem
from harness.fingerprint import compare, identity, installed, lock
from harness.profiles.load import root
from harness.profiles.model import Profile

_THREADS = 2


@dataclass(frozen=True, kw_only=True)
class Verified:
    """What was checked. ``contents`` name the wheels' files, ``states`` the files on this disk as read."""

    contents: dict[str, str]
    states: dict[str, str]
    distributions: int
    files: int
    seconds: float

    def line(self) -> str:
        """For people."""
        names = ", ".join(sorted(self.contents))
        return (
            f"{self.distributions} distributions as locked, {self.files} files of {names} as in the wheels; "
            f"checked in {self.seconds:.1f} s"
        )


def verify(profile: Profile, *, overlay: bool, known: Mapping[str, str] | None = None) -> Verified:
    """Check everything; raises :class:`EnvironmentDiffersError` with all that differs.

    ``overlay``: a verl checkout comes before the locked one, whose files then do not matter.
    ``known``: the states of what this session has hashed; what was not written to since is not hashed again.
    """
    began = time.monotonic()
    site = installed.site_packages()
    without = frozenset({"verl"}) if overlay else frozenset()
    made = lock.marker()
    if made is None:
        raise EnvironmentDiffersError(
            f"{sys.prefix} is no environment of verlock",
            why=f"there is no {lock.MARKER} in it that says which lock it was made from",
            todo="start with `verlock`, which makes and enters the environment of the profile",
        )
    problems = list(lock.altered(profile, made))
    if problems:
        raise EnvironmentDiffersError(*problems)
    expected = lock.pins(profile)
    found = {str(canonicalize_name(d.metadata["Name"])): d.version for d in distributions(path=[str(site)])}
    problems += compare.versions(expected, found, tools=lock.pins(profile, *made["locks"]), without=without)
    held = {name: installed.read(name, site) for name in installed.HASHED if name not in without}
    there = {name: d for name, d in held.items() if d is not None}
    states = {name: installed.state(d) for name, d in there.items()}  # before the content is read
    hashed = {n: d for n, d in held.items() if n not in states or states[n] != (known or {}).get(n)}
    problems += _files(site, hashed)
    problems += compare.places(str(site), origins(held))
    problems += _image(profile)
    if problems:
        raise EnvironmentDiffersError(*problems)
    return Verified(
        contents={name: d.content for name, d in there.items()},
        states=states,
        distributions=len(expected),
        files=sum(len(d.files) for d in there.values()),
        seconds=round(time.monotonic() - began, 3),
    )


def _files(site: Path, held: Mapping[str, installed.Distribution | None]) -> Iterator[Problem]:
    for name, distribution in held.items():
        if distribution is None:
            yield Problem(what=f"{name} or its RECORD is not there", where=str(site), todo=compare.ANEW)
            continue
        threads = min(_THREADS, os.cpu_count() or 1)
        yield from compare.files(name, str(site), installed.differing(distribution, threads=threads))


def origins(names: Mapping[str, Any]) -> dict[str, str | None]:
    """Where each module is, or would be imported from."""
    found: dict[str, str | None] = {}
    for name in names:
        spec = getattr(sys.modules.get(name), "__spec__", None) or PathFinder.find_spec(name)
        found[name] = os.path.realpath(spec.origin) if spec is not None and spec.origin else None
    return found


def _image(profile: Profile) -> Iterator[Problem]:
    """What is left in an image of what it was built from: the harness, the profiles, lock and overrides."""
    folders = {"harness": Path(harness.__file__).parent, "profiles": root() / "profiles"}
    for name, digest in sorted(identity.image_parts().items()):
        path = folders.get(name, lock.home(profile) / name)
        if not path.exists():
            continue  # only the build needed it: the base, the Dockerfile, the installer's lock
        found = identity.content(path) if path.is_dir() else hashlib.sha256(path.read_bytes()).hexdigest()
        if found != digest:
            yield Problem(
                what="this is not what the image was built from",
                where=str(path),
                why=f"its SHA-256 is {found}, not {digest}",
                todo="take the image anew, by its digest",
            )
