"""``verlock deps`` inside an environment: climb with every import written down, then judge each package."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from harness.adapt.imports import VARIABLE
from harness.console import Output
from harness.errors import RungFailedError
from harness.evidence import events
from harness.fingerprint.lock import pins
from harness.ladder.deps.graph import Installed, Needed, judge
from harness.profiles.load import load
from harness.profiles.model import Profile

START = "start"
_CODE = (".py", ".so", ".pyd")


def run(profile_name: str, *, last: str, output: Output) -> None:
    """Measure and report.

    Raises:
        RungFailedError: the climb that is watched did not pass; its own message was shown.
    """
    profile = load(profile_name)
    with tempfile.TemporaryDirectory(prefix="verlock-deps-") as place:
        folder = Path(place)
        record = _climb(profile, last, folder)
        imported = by_rung(events.read(record / "events.jsonl"), folder / "imports")
    installed = here(pins(profile))
    needed = judge(installed, imported, roots(profile))
    document = _document(profile, needed, imported)
    output.result(document, lambda: _print(document, output))


def _climb(profile: Profile, last: str, folder: Path) -> Path:
    """A climb with no forked workers: those start with everything imported already."""
    (folder / "imports").mkdir()
    runs = folder / "runs"
    words = ["--profile", profile.name, "--to", last, "--no-fork", "--json", "--runs", str(runs)]
    if profile.run.device != "cpu":
        words.append("--rehearse")
    done = subprocess.run(
        [sys.executable, "-P", "-m", "harness", "climb", *words],
        env={**os.environ, VARIABLE: str(folder / "imports")},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise RungFailedError(
            f"the climb whose imports are watched ended with exit code {done.returncode}",
            why="what an unfinished run imports says nothing about what is needed",
            todo="climb by itself first: verlock climb --no-fork",
        )
    return (runs / "latest").resolve()


def by_rung(seen: list[dict[str, Any]], folder: Path) -> dict[str, set[str]]:
    """Modules by the rung in which they came, by the clock: a process belongs to the rung that started it."""
    starts = [(_stamp(e["time"]), str(e["rung"])) for e in seen if e["kind"] == "rung_started"]
    found: dict[str, set[str]] = {START: set(), **{rung: set() for _, rung in starts}}
    for file in folder.glob("*.txt"):
        for line in file.read_text(encoding="utf-8").splitlines():
            time, _, module = line.partition(" ")
            rung = next((name for start, name in reversed(starts) if float(time) >= start), START)
            found[rung].add(module)
    return found


def _stamp(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def here(locked: Mapping[str, str]) -> dict[str, Installed]:
    """The locked distributions of this environment."""
    found = {}
    for one in distributions():
        name = str(canonicalize_name(one.metadata["Name"]))
        if name in locked:
            files = [Path(str(file)) for file in one.files or ()]
            found[name] = Installed(
                name=name,
                version=one.version,
                requires=tuple(one.requires or ()),
                modules=frozenset(module for file in files if (module := _module(file))),
                size=sum(file.size or 0 for file in one.files or ()),
            )
    return found


def _module(file: Path) -> str | None:
    """First two parts of the module that a file is; none where it is none."""
    if file.suffix not in _CODE or ".." in file.parts or file.parts[0].endswith((".dist-info", ".data")):
        return None
    parts = [*file.parts[:-1], file.name.partition(".")[0]]
    if parts[-1] == "__init__":
        parts.pop()
    return ".".join(parts[:2]) or None


def roots(profile: Profile) -> list[str]:
    """What the profile itself asks for."""
    software = profile.software
    extras = f"[{','.join(software.verl_extras)}]" if software.verl_extras else ""
    own = ("transformers", "ray", "tensordict", "torch")
    return [f"verl{extras}", *own, *software.requirements]


def _document(profile: Profile, needed: list[Needed], imported: Mapping[str, set[str]]) -> dict[str, Any]:
    used = [one for one in needed if one.rung]
    idle = [one for one in needed if not one.rung]
    return {
        "profile": profile.name,
        "rungs": {rung: sorted(one.name for one in used if one.rung == rung) for rung in imported},
        "packages": [asdict(one) for one in needed],
        "needed": {"packages": len(used), "bytes": sum(one.size for one in used)},
        "idle": {"packages": len(idle), "bytes": sum(one.size for one in idle)},
    }


def _print(document: dict[str, Any], output: Output) -> None:
    packages = {one["name"]: one for one in document["packages"]}
    for rung, names in document["rungs"].items():
        size = sum(packages[name]["size"] for name in names)
        output.line(f"{rung}: {len(names)} packages more, {size / 1e6:.0f} MB: {', '.join(names)}")
    output.line("imported by no rung, largest first, and who asks for it:")
    for one in document["packages"]:
        if one["rung"] is None:
            ways = ", ".join(one["asked_by"]) or "nobody"
            output.line(f"  {one['size'] / 1e6:8.1f} MB  {one['name']} {one['version']}: {ways}")
    needed, idle = document["needed"], document["idle"]
    output.line(
        f"{document['profile']} imports {needed['packages']} of {needed['packages'] + idle['packages']} "
        f"packages, {needed['bytes'] / 1e6:.0f} MB; {idle['bytes'] / 1e6:.0f} MB are never imported",
        style="bold green",
    )
