"""The check that each process makes before it uses verl: the driver's numbers against this node's disk.

The driver passes what it verified in one environment variable. A process compares with its own disk:

- profile, lock, harness (and the verl laid over it) by content, the distributions by name and version;
- verl by the hash of each file;
- torch and ray by what the kernel says of each file: where that is what the driver saw, these are the very
  files that it has hashed, untouched. Anywhere else (another node, another container, a file written to in
  between) by the hash of each file.

Measured: 0.1 s a process on the driver's node, 1 s on another. The variable holds no path of the driver but
that of ``--verl-source``, so it holds for a whole cluster.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from harness.errors import EnvironmentDiffersError, Problem, VerlockError
from harness.evidence import events
from harness.fingerprint import compare, identity, installed, lock
from harness.fingerprint.verify import origins
from harness.profiles.load import load
from harness.profiles.model import Profile

VARIABLE = "VERLOCK_FINGERPRINT"
EVENT = "environment_differs"
_TOLD = 10


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What the driver verified. Without ``states`` (another boot, another node) every file is hashed."""

    profile: str
    parts: Mapping[str, Any]
    contents: Mapping[str, str]
    states: Mapping[str, str] = field(default_factory=dict)
    source: str | None = None

    def variables(self) -> dict[str, str]:
        """The environment variable that carries it."""
        return {VARIABLE: json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))}


def here(profile: Profile) -> Expected:
    """What this node has, for the other processes of a job; the command `fingerprint` checked it before."""
    site = installed.site_packages()
    held = (installed.read(name, site) for name in installed.HASHED)
    contents = {distribution.name: distribution.content for distribution in held if distribution is not None}
    return Expected(profile=profile.name, parts=identity.parts(profile, None), contents=contents)


def reported(seen: Iterable[Mapping[str, Any]]) -> EnvironmentDiffersError | None:
    """What the first process that refused to work left in the run's events."""
    differs = next((event for event in seen if event["kind"] == EVENT), None)
    if differs is None:
        return None
    found = [Problem(**problem) for problem in differs["problems"]]
    return EnvironmentDiffersError(
        *(replace(problem, what=f"in {differs['role']}: {problem.what}") for problem in found)
    )


def expected(environ: Mapping[str, str]) -> Expected | None:
    """What the driver passed; none where there is no driver of ours."""
    text = environ.get(VARIABLE)
    if not text:
        return None
    try:
        return Expected(**json.loads(text))
    except (ValueError, TypeError) as error:
        raise EnvironmentDiffersError(
            f"{VARIABLE} cannot be read",
            why=str(error),
            todo="pass it as `verlock fingerprint --json` gives it",
        ) from error


def check(environ: Mapping[str, str] = os.environ) -> dict[str, Any] | None:
    """Check this process; returns how and how long, or none where nothing was asked for.

    Raises :class:`EnvironmentDiffersError` after it has left the problems in the run's events: a worker's
    own error reaches the driver only as text.
    """
    began = time.monotonic()
    found: Sequence[Problem]
    try:
        wanted = expected(environ)
        if wanted is None:
            return None
        found = list(problems(wanted))
    except VerlockError as error:
        found = error.problems
    except OSError as error:
        found = [Problem(what=f"cannot be read: {error.strerror}", where=str(error.filename))]
    if found:
        events.emit(EVENT, problems=[asdict(problem) for problem in found[:_TOLD]])
        raise EnvironmentDiffersError(*found)
    return {"forked": False, "seconds": round(time.monotonic() - began, 3)}


def problems(wanted: Expected) -> Iterator[Problem]:
    """All that is not as the driver has it; reads what it must."""
    profile, site = load(wanted.profile), installed.site_packages()
    yield from _identity(wanted, profile)
    made = lock.marker()
    tools = lock.pins(profile, *made["locks"]) if made else {}
    without = frozenset() if wanted.source is None else frozenset({"verl"})
    yield from compare.versions(lock.pins(profile), installed.versions(site), tools=tools, without=without)
    there = {name: d for name in wanted.contents if (d := _read(name, site)) is not None}
    yield from compare.contents(wanted.contents, {name: d.content for name, d in there.items()})
    for name, distribution in there.items():
        if name == "verl" or not _untouched(wanted, distribution):
            yield from compare.files(name, str(site), installed.differing(distribution))
    yield from compare.places(str(site), origins(wanted.contents))


def touched(environ: Mapping[str, str]) -> str | None:
    """Why a process that has imported everything must not be forked any more; hashes nothing large.

    For the fork server: its children run what it imported, so a file that was written to since the driver's
    check is enough, whatever is in it now. The process then starts normally, and :func:`check` has its say.
    """
    try:
        wanted = expected(environ)
        return None if wanted is None else _touched(wanted)
    except VerlockError as error:
        return str(error)


def _touched(wanted: Expected) -> str | None:
    site = installed.site_packages()
    for name in wanted.contents:
        distribution = _read(name, site)
        if distribution is None or not _untouched(wanted, distribution):
            return f"files of {name} were written to since they were checked"
    different = next(_identity(wanted, load(wanted.profile)), None)
    return different.what if different else None


def _identity(wanted: Expected, profile: Profile) -> Iterator[Problem]:
    source = Path(wanted.source) if wanted.source else None
    yield from compare.parts(wanted.parts, identity.parts(profile, source))


def _untouched(wanted: Expected, distribution: installed.Distribution) -> bool:
    return wanted.states.get(distribution.name) == installed.state(distribution)


def _read(name: str, site: Path) -> installed.Distribution | None:
    """RECORD's rows, kept as long as its file stays the same: the fork server asks for each child."""
    record = next(site.glob(f"{name}-*.dist-info/RECORD"), None)
    stat = record.stat() if record else None
    return _rows(name, site, (stat.st_ino, stat.st_size, stat.st_mtime_ns)) if stat else None


@lru_cache(maxsize=8)
def _rows(name: str, site: Path, _file: tuple[int, int, int]) -> installed.Distribution | None:
    return installed.read(name, site)
