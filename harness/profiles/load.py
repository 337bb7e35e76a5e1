"""From a profile's name to the frozen model, with every problem of its files reported at once."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import yaml
from pydantic import ValidationError

from harness.errors import Problem, ProfileError, UnknownProfileError
from harness.profiles import explain, releases
from harness.profiles.consistency import contradictions
from harness.profiles.model import Profile
from harness.profiles.tree import Tree, overlay, read_file, where

EXTENDS = "extends"


def root() -> Path:
    """The repository, or what stands for it: an image has no checkout, and names a folder in VERLOCK_ROOT."""
    given = os.environ.get("VERLOCK_ROOT")
    return Path(given).resolve() if given else Path(__file__).resolve().parents[2]


def names() -> tuple[str, ...]:
    """All profiles. A file that starts with ``_`` is a base for others."""
    return tuple(sorted(path.stem for path in folder().glob("*.yaml") if not path.stem.startswith("_")))


def folder() -> Path:
    """Where the profiles are."""
    return root() / "profiles"


def load(name: str) -> Profile:
    """The profile ``name``; short names (``p40``) work too, and ``cpu@0.8.0`` is it with another verl.

    :raises UnknownProfileError: when there is none, with the nearest that there is.
    :raises ProfileError: with all that is wrong with its files.
    :raises UnknownVerlError: when it has no lock for that verl, with the list of those that it has.
    """
    bare, mark, verl = name.partition(releases.MARK)
    profile = load_file(folder() / f"{resolve(bare)}.yaml")
    return releases.at(profile, verl) if mark else profile


def resolve(name: str) -> str:
    """The full name for a full or short one."""
    known = names()
    if name in known:
        return name
    shorts = {short: full for full in known if (short := _short(full))}
    if name in shorts:
        return shorts[name]
    close = explain.nearest(name, [*known, *shorts])
    raise UnknownProfileError(
        f"no profile is named {name!r}",
        where="profiles/",
        why=f"the profiles are {', '.join(known)}"
        + (f" (short: {', '.join(sorted(shorts))})" if shorts else ""),
        todo=f"did you mean {close!r}?" if close else "choose one of them",
    )


def load_file(path: Path) -> Profile:
    """The profile in one file, laid over those that it extends."""
    tree = _with_bases(path, ())
    problems = list(tree.problems)
    try:
        profile = Profile.model_validate({**tree.data, "name": path.stem})
    except ValidationError as error:
        raise ProfileError(*_ordered(problems + explain.problems(error, tree, Profile))) from None
    problems += [
        Problem(
            what=found.what, where=where(tree.place(found.path), found.path), why=found.why, todo=found.todo
        )
        for found in contradictions(profile)
    ]
    if "name" in tree.data:
        place = where(tree.place(("name",)), ("name",))
        problems.append(Problem(what="a profile is named by its file", where=place, todo="remove the key"))
    if problems:
        raise ProfileError(*_ordered(problems))
    return profile


def _with_bases(path: Path, seen: tuple[Path, ...]) -> Tree:
    shown = f"{path.parent.name}/{path.name}"
    tree = read_file(path, file=shown)
    base = tree.data.pop(EXTENDS, None)
    if base is None:
        return tree
    place = where(tree.place((EXTENDS,)), (EXTENDS,))
    target = path.parent / f"{base}.yaml"
    if not isinstance(base, str) or not target.is_file():
        close = explain.nearest(str(base), [other.stem for other in path.parent.glob("*.yaml")])
        raise ProfileError(
            f"there is no profile {base!r} to extend",
            where=place,
            todo=f"did you mean {close!r}?" if close else None,
        )
    if target in (*seen, path):
        raise ProfileError(
            f"the profile extends itself through {base!r}", where=place, todo="extend another one"
        )
    return overlay(_with_bases(target, (*seen, path)), tree)


def _ordered(problems: list[Problem]) -> list[Problem]:
    """By file and line, so that a person can work from the top down."""

    def position(problem: Problem) -> tuple[str, int]:
        file, _, rest = (problem.where or "").partition(":")
        line = rest.partition(":")[0]
        return file, int(line) if line.isdigit() else 0

    return sorted(problems, key=position)


def _short(full: str) -> str | None:
    """The short name in a file; the rest is not judged, so that a broken neighbour cannot break a look-up."""
    path = folder() / f"{full}.yaml"
    return _short_of(path, path.stat().st_mtime_ns)


@cache
def _short_of(path: Path, _changed: int) -> str | None:
    try:
        data = yaml.safe_load(path.read_bytes())
    except (OSError, ValueError, RecursionError, yaml.YAMLError):
        return None
    short = data.get("short") if isinstance(data, dict) else None
    return short if isinstance(short, str) else None
