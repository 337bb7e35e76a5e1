"""Who requires whom among installed distributions, and the way from the profile's own list to each. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


@dataclass(frozen=True, kw_only=True)
class Installed:
    """One distribution: what it requires (metadata lines), its modules, and its bytes on disk."""

    name: str
    version: str
    requires: tuple[str, ...] = ()
    modules: frozenset[str] = frozenset()
    """First two parts of each module's name, or the one part it has."""
    size: int = 0


@dataclass(frozen=True, kw_only=True)
class Needed:
    """One locked package, judged."""

    name: str
    version: str
    size: int
    rung: str | None
    """The first rung that imports it; none where no rung does."""
    asked_by: tuple[str, ...]
    """Installed packages that require it, and ``the profile``."""
    path: tuple[str, ...]
    """The shortest way from the profile to it."""


PROFILE = "the profile"


def requirements(one: Installed, extras: frozenset[str] = frozenset()) -> set[tuple[str, frozenset[str]]]:
    """Names and extras that it really requires here, for the extras that are asked of it."""
    found = set()
    for text in one.requires:
        wanted = Requirement(text)
        if _holds(wanted.marker, extras):
            found.add((str(canonicalize_name(wanted.name)), frozenset(wanted.extras)))
    return found


def _holds(marker: Marker | None, extras: frozenset[str]) -> bool:
    return marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras))


def parents(installed: Mapping[str, Installed], roots: Iterable[str]) -> dict[str, set[str]]:
    """Who asks for each package, walked from the profile's own requirements; extras are followed."""
    asked: dict[str, set[str]] = {}
    seen: set[tuple[str, frozenset[str]]] = set()
    queue: deque[tuple[str, str, frozenset[str]]] = deque()
    for text in roots:
        wanted = Requirement(text)
        if _holds(wanted.marker, frozenset()):
            queue.append((PROFILE, str(canonicalize_name(wanted.name)), frozenset(wanted.extras)))
    while queue:
        parent, name, extras = queue.popleft()
        asked.setdefault(name, set()).add(parent)
        if (name, extras) in seen or name not in installed:
            continue
        seen.add((name, extras))
        queue.extend((name, *one) for one in requirements(installed[name], extras))
    return asked


def path(name: str, asked: Mapping[str, set[str]]) -> tuple[str, ...]:
    """The shortest way from the profile to a package; empty where nothing asks for it."""
    queue: deque[tuple[str, ...]] = deque([(name,)])
    seen = {name}
    while queue:
        way = queue.popleft()
        for parent in sorted(asked.get(way[0], ())):
            if parent == PROFILE:
                return (PROFILE, *way)
            if parent not in seen:
                seen.add(parent)
                queue.append((parent, *way))
    return ()


def owners(installed: Mapping[str, Installed], modules: Iterable[str]) -> set[str]:
    """The distributions that these modules are of; a module of none is Python's own, or the harness's."""
    index: dict[str, set[str]] = {}
    for one in installed.values():
        for module in one.modules:
            index.setdefault(module, set()).add(one.name)
            index.setdefault(f"{module.partition('.')[0]}.", set()).add(one.name)
    found: set[str] = set()
    for module in modules:
        exact = index.get(module, set())
        top = index.get(f"{module.partition('.')[0]}.", set())
        # A top name that one distribution has is its own; a shared one (google) needs the second part.
        if len(top) == 1:
            found |= top
        elif "." in module:
            found |= exact
    return found


def judge(
    installed: Mapping[str, Installed], imported: Mapping[str, set[str]], roots: Iterable[str]
) -> list[Needed]:
    """Every package with the first rung that imports it. ``imported``: modules by rung, in order."""
    first: dict[str, str] = {}
    for rung, modules in imported.items():
        for name in owners(installed, modules):
            first.setdefault(name, rung)
    asked = parents(installed, roots)
    return [
        Needed(
            name=one.name,
            version=one.version,
            size=one.size,
            rung=first.get(one.name),
            asked_by=tuple(sorted(asked.get(one.name, ()))),
            path=path(one.name, asked),
        )
        for one in sorted(installed.values(), key=lambda one: -one.size)
    ]
