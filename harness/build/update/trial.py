"""One change, tried in a copy of what it touches: the locks' difference, the audit's word, what still fits.

The copy goes through the same commands that a person would run, so a proposal is what writing it would give.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from harness.build import base_lock, files, lockfile
from harness.build.index import Index, target_tags
from harness.build.lock import folder
from harness.build.ranges import RangeFile
from harness.build.update.changes import BASE, Change
from harness.build.update.edits import apply
from harness.build.update.newer import Moved, moved, moved_packages
from harness.build.web import Web
from harness.errors import LockError
from harness.profiles import Profile, names, root

# What a lock, a render and an audit read.
_READ = ("profiles", "docker", ".github")


@dataclass(frozen=True, kw_only=True)
class Trial:
    """What came of a change."""

    change: Change
    locks: dict[str, tuple[Moved, ...]] = field(default_factory=dict)
    """By lock file: what moved."""
    audit: str | None = None
    """The verdict on the new lock; none where there is no card to judge for."""
    patches: tuple[dict[str, Any], ...] = ()
    problems: tuple[str, ...] = ()
    """Why it cannot be taken as it is."""

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


@contextlib.contextmanager
def copied(change: Change) -> Iterator[Path]:
    """A copy of what the change touches and what depends on it, with the change made."""
    with tempfile.TemporaryDirectory(prefix="verlock-update-") as name:
        place = Path(name)
        for part in _READ:
            shutil.copytree(root() / part, place / part, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copyfile(root() / "pyproject.toml", place / "pyproject.toml")
        for edit in change.edits:
            path = place / edit.file
            path.write_text(apply(path.read_text(encoding="utf-8"), edit), encoding="utf-8")
        yield place


def concerned(profile: Profile, change: Change) -> list[str]:
    """The profiles whose locks a change moves: all that read the edited files, since locks must agree."""
    if any(Path(edit.file).name.startswith("_") for edit in change.edits):
        return list(names())
    mark = f"extends: {profile.name}\n"
    return [
        name
        for name in names()
        if name == profile.name or mark in (root() / "profiles" / f"{name}.yaml").read_text(encoding="utf-8")
    ]


def attempt(profile: Profile, change: Change, web: Web, index: Index) -> Trial:
    """Try a change; the difference is shown for the one profile."""
    with copied(change) as place:
        code, said = remake(place, change, concerned(profile, change))
        problems = said if code else ()
        locks = _moved(place, profile)
        audited = None
        if not code and locks and profile.hardware.accelerator == "cuda" and change.name != BASE:
            _, document = _verlock(place, "audit", profile.name)
            audited = str(document.get("verdict") or _told(document))
    patches: tuple[dict[str, Any], ...] = ()
    if change.name == "verl":
        patches = _patches(profile, change.proposed, web, index)
    return Trial(change=change, locks=locks, audit=audited, patches=patches, problems=tuple(problems))


def remake(place: Path, change: Change, names: Sequence[str]) -> tuple[int, tuple[str, ...]]:
    """Make the generated files in ``place`` again for the named profiles; exit code, and what went wrong."""
    commands = [["render", *names], ["lock", *names]]
    if change.name == BASE:
        commands = [["build", name, "--update-base", "--base-only"] for name in names]
    elif all(edit.file.startswith(".github") for edit in change.edits):
        commands = []
    for command in commands:
        code, document = _verlock(place, *command)
        if code:
            return code, tuple(_told(document).splitlines())
    return 0, ()


def _verlock(place: Path, *words: str) -> tuple[int, dict[str, Any]]:
    """A command of this verlock on the files of ``place``."""
    command = [sys.executable, "-m", "harness", *words, "--json"]
    environment = {**os.environ, "VERLOCK_ROOT": str(place)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    try:
        document = json.loads(done.stdout)
    except ValueError:
        document = {"error": {"problems": [{"what": done.stderr.strip()[-500:]}]}}
    return done.returncode, dict(document)


def _told(document: dict[str, Any]) -> str:
    problems = (document.get("error") or {}).get("problems") or []
    return "\n".join(
        f"{one['what']}" + (f" ({one['why']})" if one.get("why") else "") for one in problems
    ) or str(document)


def _moved(place: Path, profile: Profile) -> dict[str, tuple[Moved, ...]]:
    here = folder(profile)
    there = place / here.relative_to(root())
    found: dict[str, tuple[Moved, ...]] = {}
    for path in sorted(there.glob("*.lock")):
        old = here / path.name
        if path.name == base_lock.FILE:
            before = base_lock.read(old) if old.exists() else ()
            changes = moved_packages(before, base_lock.read(path))
        else:
            texts = [one.read_text(encoding="utf-8") if one.exists() else "" for one in (old, path)]
            pins = [lockfile.parse(text, file=files.shown(path)) for text in texts]
            changes = moved(pins[0], pins[1])
        if changes:
            found[path.name] = changes
    return found


def _patches(profile: Profile, version: str, web: Web, index: Index) -> tuple[dict[str, Any], ...]:
    """What ``harness.adapt.fits`` says of this version's source, which is read from its wheel."""
    target = profile.software.targets[0]
    offer = index.find("verl", version=version, hashes=(), tags=target_tags(profile, target))
    if offer is None or not offer.name.endswith(".whl"):
        raise LockError(f"verl {version} has no wheel to read the patched code from")
    with tempfile.TemporaryDirectory(prefix="verlock-verl-") as name:
        with zipfile.ZipFile(_open(offer.address, web)) as wheel:
            members = [one for one in wheel.namelist() if one.startswith("verl/") and one.endswith(".py")]
            wheel.extractall(name, members)
        command = [sys.executable, "-m", "harness.adapt.fits", name, version]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise LockError(f"the patches could not be judged on verl {version}", why=done.stderr[-500:])
    return tuple(json.loads(done.stdout))


def _open(address: str, web: Web) -> Any:
    return Path(address).open("rb") if Path(address).is_file() else RangeFile(web, address)
