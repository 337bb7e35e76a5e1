"""``verlock build``: from a profile to the one archive, and the image that is loaded from it.

What runs here, what is proven and what is handed on is the same thing: the engine's own result is only
the raw material, and the canonical archive made from it is loaded back.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.build import base, files, sources
from harness.build.engine import Engine, choose, find
from harness.build.image import steps
from harness.build.image.context import Context, stage
from harness.build.image.normalise import Canonical, normalise
from harness.build.image.secrets import secrets
from harness.console import Output
from harness.errors import BuildError
from harness.profiles import Profile, load, root

ARCHIVE = "image.tar"
RECORD = "image.json"
_SCRATCH = (".base.*", ".build.*", ".saved.*", ".new.*")


@dataclass(frozen=True, kw_only=True)
class Bench:
    """All that two builds of the same thing share."""

    profile: Profile
    engine: Engine
    home: Path
    base: base.Base
    context: Context
    options: tuple[str, ...]
    output: Output
    revision: str = ""
    """The commit that is built, as the image's label says it."""
    frugal: bool = False
    """Whether the engine's build cache is emptied as soon as the image is saved."""
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Add what the block takes to the record."""
        begin = time.monotonic()
        yield
        self.seconds[name] = round(time.monotonic() - begin, 1)


def build(
    given: str,
    *,
    update_base: bool,
    base_only: bool,
    no_cache: bool,
    output: Output,
    frugal: bool = False,
) -> dict[str, Any]:
    """Build the profile's image; return its record, which is written when everything else is there.

    ``frugal`` trades time for disk: at most twice the image's size is taken, in place of five times.
    """
    profile = load(given)
    home = place(profile)
    if base_only:
        with alone(home):
            made = base.prepare(profile, home, update=update_base, fresh=False, output=output)
        return {"profile": profile.name, "base": {"reference": made.reference, "digest": made.digest}}
    with bench(
        profile, home, update_base=update_base, fresh_base=False, output=output, frugal=frugal
    ) as ready:
        part = home / f".new.{ARCHIVE}"
        try:
            return publish(ready, once(ready, part, no_cache=no_cache))
        finally:
            part.unlink(missing_ok=True)


def place(profile: Profile) -> Path:
    """Where the artifacts of a profile go."""
    return root() / "dist" / profile.name


def reference(profile: Profile) -> str:
    """What engines call the image."""
    return f"verlock:{profile.short}"


@contextmanager
def bench(
    profile: Profile, home: Path, *, update_base: bool, fresh_base: bool, output: Output, frugal: bool = False
) -> Iterator[Bench]:
    """Engine, base, staged context and secrets, for the time of the block.

    Raises:
        EngineError: no engine can build.
        BuildError: the base cannot be made, or is not what its lock says.
        StaleError, LockError: a generated file is not current, or a lock was altered.
    """
    engine = choose(find())
    output.line(f"engine: {engine.title()}")
    with alone(home):
        begin = time.monotonic()
        start = base.prepare(profile, home, update=update_base, fresh=fresh_base, output=output)
        if start.archive is not None:
            load_archive(engine, start.archive, output)
        seconds = {"base": round(time.monotonic() - begin, 1)}
        where_from = sources.here()
        with files.disk_errors(home):
            scratch = Path(tempfile.mkdtemp(dir=home, prefix=".build."))
        try:
            context = stage(profile, scratch / "context", base=start.digest, where_from=where_from)
            # Once: the checkout may change before the build ends, and label and record must say the same.
            commit = revision()
            options = [*_arguments(profile, engine, start, context, commit), *secrets(where_from, scratch)]
            yield Bench(
                profile=profile,
                engine=engine,
                home=home,
                base=start,
                context=context,
                options=tuple(options),
                output=output,
                revision=commit,
                frugal=frugal,
                seconds=seconds,
            )
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


@contextmanager
def alone(home: Path) -> Iterator[None]:
    """One build of a profile at a time; a second one waits."""
    with files.disk_errors(home):
        home.mkdir(parents=True, exist_ok=True)
        lock = home.with_name(f".{home.name}.lock").open("w")
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _sweep(home)
        yield


def _sweep(home: Path) -> None:
    """Remove what a killed build left: nobody else is at work here. What is mounted in it is not touched."""
    table = Path("/proc/self/mountinfo")
    mounted = [line.split()[4] for line in table.read_text().splitlines()] if table.exists() else []
    for left in (path for pattern in _SCRATCH for path in home.glob(pattern)):
        inside = [point for point in mounted if Path(point).is_relative_to(left.absolute())]
        if inside:
            raise BuildError(
                "a build that was killed left folders of this machine mounted",
                where=", ".join(inside),
                why="removing them would remove what is in them",
                todo=f"umount {' '.join(reversed(inside))}; never rm -rf {files.shown(left)} before",
            )
        if left.is_dir():
            shutil.rmtree(left)
        else:
            left.unlink()


def once(ready: Bench, target: Path, *, no_cache: bool) -> Canonical:
    """Build, save and normalise to ``target``; the engine's own image is removed again.

    Raises what :func:`harness.build.image.steps.run` and :func:`normalise` raise; nothing remains then.
    """
    engine, output = ready.engine, ready.output
    tag = f"verlock-build:{ready.profile.short}-{os.getpid()}"
    fresh = ["--no-cache"] if no_cache else []
    fresh += ["--build-arg", "FRESH=1"] if no_cache or ready.frugal else []
    raw = ready.home / f".saved.{os.getpid()}.tar"
    try:
        with ready.timed("build"):
            command = ["build", *ready.options, *fresh, "--tag", tag, str(ready.context.path)]
            steps.run(engine, command, output=output, doing=f"building {ready.profile.name}")
        if ready.frugal:
            # The cache holds the builder's stage, which is as large as the image.
            _quietly(engine, "builder", "prune", "--all", "--force")
        with ready.timed("save"):
            steps.run(engine, ["save", "--output", str(raw), tag], output=output, doing="saving the image")
        if ready.frugal:
            _quietly(engine, "rmi", tag)
            _quietly(engine, "builder", "prune", "--all", "--force")
        with ready.timed("normalise"):
            return normalise(raw, target, name=reference(ready.profile))
    finally:
        raw.unlink(missing_ok=True)
        _quietly(engine, "rmi", tag)


def publish(ready: Bench, made: Canonical) -> dict[str, Any]:
    """Load the archive and move it to its place; ``image.json``, which describes it, is written last."""
    with ready.timed("load"):
        load_archive(ready.engine, made.path, ready.output)
    (ready.home / RECORD).unlink(missing_ok=True)
    made.path.replace(ready.home / ARCHIVE)
    profile = ready.profile
    record = {
        "schema_version": 1,
        "profile": profile.name,
        "name": reference(profile),
        "platform": profile.hardware.container_platform,
        "manifest": made.manifest,
        "config": made.config,
        "layers": made.layers,
        "archive": {"file": ARCHIVE, "sha256": made.archive, "bytes": made.size},
        "base": {"reference": ready.base.reference, "digest": ready.base.digest},
        "fingerprint": ready.context.fingerprint,
        "parts": ready.context.parts,
        "revision": ready.revision,
        "engine": {"kind": ready.engine.kind, "version": ready.engine.server},
        "seconds": ready.seconds,
    }
    files.write(ready.home / RECORD, json.dumps(record, indent=2) + "\n")
    return record


def load_archive(engine: Engine, path: Path, output: Output) -> None:
    """Load an archive into the engine."""
    steps.run(engine, ["load", "--input", str(path)], output=output, doing=f"loading {files.shown(path)}")


def revision() -> str:
    """The commit of this checkout, with ``-dirty`` where it was changed since; empty outside of git."""
    commit = _git("rev-parse", "HEAD")
    return f"{commit}-dirty" if commit and _git("status", "--porcelain") else commit


def _git(*words: str) -> str:
    git = shutil.which("git")
    if git is None:
        return ""
    asked = [git, "-C", str(root()), *words]
    return subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()


def _arguments(
    profile: Profile, engine: Engine, start: base.Base, context: Context, commit: str
) -> list[str]:
    values = {
        "BASE": start.reference,
        "FINGERPRINT": context.fingerprint,
        "REVISION": commit,
        "SOURCE_DATE_EPOCH": "0",
    }
    arguments = [part for name, value in values.items() for part in ("--build-arg", f"{name}={value}")]
    # A proxy is this machine's business; these names are known to every engine, and kept out of the image.
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"):
        if os.environ.get(name):
            arguments += ["--build-arg", name]
    if engine.network == "host":
        arguments += ["--network", "host"]
    if engine.kind == "docker":
        arguments += ["--progress", "plain"]
    return [
        *arguments,
        "--platform",
        profile.hardware.container_platform,
        "--file",
        str(context.dockerfile),
    ]


def _quietly(engine: Engine, *arguments: str) -> None:
    subprocess.run(engine.command(*arguments), capture_output=True, check=False)
