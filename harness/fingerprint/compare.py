"""The judgement: what was expected against what was found, as problems. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from harness.errors import Problem

ANEW = "make the environment anew: verlock env PROFILE --fresh; in an image: take it anew, by its digest"
# Installed by reference or copied in, and held by the part `harness` of the fingerprint.
OURS = frozenset({"verlock"})
_NAMED = 5


def versions(
    expected: Mapping[str, str],
    found: Mapping[str, str],
    *,
    tools: Mapping[str, str],
    without: frozenset[str] = frozenset(),
) -> Iterator[Problem]:
    """Distributions that are missing, of another version, or there without being locked.

    ``tools`` are locked too, and need not be there for a run; ``without`` are not looked at.
    """
    for name, version in sorted({**expected, **{n: v for n, v in tools.items() if n in found}}.items()):
        if name not in without and found.get(name) != version:
            there = "not installed" if name not in found else f"version {found[name]}"
            yield Problem(what=f"{name} is {there}, the lock says {version}", todo=ANEW)
    for name in sorted(found.keys() - expected.keys() - tools.keys() - without - OURS):
        yield Problem(
            what=f"{name} {found[name]} is installed, and the lock does not name it",
            why="transformers, verl and Ray behave otherwise where a package can be imported",
            todo=ANEW,
        )


def files(name: str, site: str, paths: Sequence[str]) -> Iterator[Problem]:
    """Files of a distribution that are not what its RECORD says."""
    for path in paths[:_NAMED]:
        yield Problem(
            what=f"{name}: this file is gone, or is not the one that was installed",
            where=f"{site}/{path}",
            why="its SHA-256 is not what the wheel's RECORD says",
            todo=ANEW,
        )
    if len(paths) > _NAMED:
        yield Problem(what=f"{name}: {len(paths) - _NAMED} more files differ", todo=ANEW)


def parts(expected: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[Problem]:
    """Parts of the fingerprint that differ: profile, lock, harness, the verl laid over it."""
    for name in sorted(expected.keys() | found.keys()):
        if expected.get(name) != found.get(name):
            yield Problem(
                what=f"the {name.replace('_', ' ')} here is not that of the driver",
                why=f"expected {expected.get(name)}, found {found.get(name)}",
                todo="give every node the same image or checkout, and edit nothing while a run goes on",
            )


def contents(expected: Mapping[str, str], found: Mapping[str, str]) -> Iterator[Problem]:
    """Distributions whose RECORD lists other files than the driver's."""
    for name in sorted(expected.keys() | found.keys()):
        if expected.get(name) != found.get(name):
            yield Problem(
                what=f"{name} here is another build than the driver's, or its RECORD was altered",
                where=f"{name}'s dist-info/RECORD",
                why=f"expected {expected.get(name)}, found {found.get(name)}",
                todo=ANEW,
            )


def places(site: str, origins: Mapping[str, str | None]) -> Iterator[Problem]:
    """Modules that would be imported from elsewhere than where the checked files are."""
    for name, origin in sorted(origins.items()):
        if origin is None or not origin.startswith(f"{site}/"):
            yield Problem(
                what=f"{name} is imported from {origin}, not from the environment",
                where="PYTHONPATH",
                why=f"the files that were checked are in {site}",
                todo="unset PYTHONPATH, and start where no folder has that name",
            )
