"""``verlock env``: an environment that holds exactly what the lock says, made once and found again.

A folder without a marker is incomplete, whatever else it holds: the marker is written last. The folder's
name is the key of what it was made from, so that a changed lock never meets an old environment.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import platform
import shutil
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from harness.build import files, lockfile, resolve, sources, uv
from harness.build.lock import BUILD, folder
from harness.console import Output
from harness.errors import LockError, WrongMachineError
from harness.fingerprint.lock import MARKER
from harness.profiles import LockTarget, Profile, root

Group = Literal["dev"]
WHEELS = ("--only-binary", ":all:")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What an environment is made from, and where it goes."""

    profile: Profile
    target: LockTarget
    locks: tuple[Path, ...]
    build: Path
    key: str

    @property
    def path(self) -> Path:
        """The environment's folder."""
        home = os.environ.get("VERLOCK_ENVS")
        return (Path(home) if home else root() / ".verlock" / "envs") / f"{self.profile.name}-{self.key[:12]}"

    @property
    def python(self) -> Path:
        """The environment's interpreter."""
        return self.path / "bin" / "python"


def ensure(profile: Profile, *, output: Output, group: Group | None = None, fresh: bool = False) -> Path:
    """The Python of the environment of ``profile``, made from its lock if it is not there yet.

    Args:
        profile: whose lock is installed.
        output: where progress goes.
        group: ``dev`` adds the locked development tools.
        fresh: make it anew even if it is there.

    Raises:
        WrongMachineError: no lock of the profile is for this machine.
        LockError: a lock that is missing or altered (told before anything is installed), or packages that
            cannot be fetched.
        DiskFullError: no space left; nothing remains half-made.
    """
    plan = _plan(profile, group)
    if _complete(plan) and not fresh:
        return plan.python
    with files.disk_errors(plan.path), _alone(plan.path.parent):
        if fresh or not _complete(plan):
            _make(plan, output)
    return plan.python


def find(profile: Profile) -> Path | None:
    """The Python of the environment of ``profile``, where it is there; nothing is made."""
    try:
        plan = _plan(profile, None)
    except (LockError, WrongMachineError):
        return None
    return plan.python if _complete(plan) else None


def _plan(profile: Profile, group: Group | None) -> Plan:
    target = _target(profile)
    home = folder(profile)
    locks = [home / target.file]
    if group:
        if target.dev_file is None:
            raise LockError(
                f"profile {profile.name} locks no development tools", todo="use the cpu profile for tests"
            )
        locks.append(home / target.dev_file)
    texts = [_read(path) for path in (*locks, home / BUILD)]
    for path, text in zip((*locks, home / BUILD), texts, strict=True):
        lockfile.check_seal(text, file=files.shown(path))
    # The root is part of it: verlock itself is installed by reference to this checkout.
    series = ".".join(uv.version().split(".")[:2])
    key = hashlib.sha256("\0".join([*texts, series, str(root())]).encode()).hexdigest()
    return Plan(profile=profile, target=target, locks=tuple(locks), build=home / BUILD, key=key)


def _target(profile: Profile) -> LockTarget:
    system, machine = platform.system(), platform.machine()
    native = {"linux": "linux", "macos": "darwin"}[profile.hardware.platform.partition("/")[0]]
    if system.lower() != native:
        raise WrongMachineError(
            f"profile {profile.name} runs on {profile.hardware.platform}, and this is {system} {machine}",
            why="wheels of another system cannot be installed here",
            todo="run smoke-cpu here"
            + ("; its container image is built for linux/arm64" if native == "darwin" else ""),
        )
    return profile.target(system, machine)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise LockError("there is no lock", where=files.shown(path), todo="make it: `verlock lock`") from None


def _complete(plan: Plan) -> bool:
    try:
        marker = json.loads((plan.path / MARKER).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(marker, dict) and marker.get("key") == plan.key and plan.python.exists()


@contextlib.contextmanager
def _alone(home: Path) -> Iterator[None]:
    """One process at a time: two sessions that start together make one environment, not two halves."""
    home.mkdir(parents=True, exist_ok=True)
    with (home / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _make(plan: Plan, output: Output) -> None:
    started = time.monotonic()
    output.line(f"making the environment {files.shown(plan.path)}")
    shutil.rmtree(plan.path, ignore_errors=True)
    try:
        _install(plan, output)
        files.write(plan.path / MARKER, json.dumps(_marker(plan), indent=2) + "\n")
    except BaseException:
        shutil.rmtree(plan.path, ignore_errors=True)
        raise
    output.line(f"  done in {time.monotonic() - started:.1f} s")


def _install(plan: Plan, output: Output) -> None:
    where_from = sources.here()
    environment = where_from.environment()
    pins = [lockfile.parse(_read(path), file=files.shown(path)) for path in plan.locks]
    python = plan.profile.software.python
    base = sys.executable if sys.version.startswith(f"{python}.") else python
    _uv(["venv", "--python", base, plan.path], environment, f"making an environment with Python {python}")
    torch = pins[0]["torch"]
    output.line(f"  torch {torch.version}")
    index = resolve.torch_index(plan.target, where_from)
    single = plan.path / "torch.lock"
    files.write(single, torch.text)
    # Alone: with its index beside the default one, other packages would come from there too.
    hashed: list[str | Path] = ["--python", plan.python, "--no-deps", "--require-hashes", *WHEELS]
    own_index: list[str | Path] = ["--default-index", index] if index else []
    hidden = {name: value for name, value in environment.items() if not index or name != "UV_INDEX"}
    _uv(["pip", "install", *hashed, *own_index, "-r", single], hidden, f"installing torch {torch.version}")
    single.unlink()
    output.line(f"  {sum(map(len, pins)) - 1} more packages")
    _uv(_sync(plan), environment, f"installing {plan.profile.name}'s lock")
    output.line("  verlock itself")
    local: list[str | Path] = ["--python", plan.python, "--no-deps", "--no-build-isolation", "--offline"]
    _uv(["pip", "install", *local, "--editable", root()], environment, "installing verlock itself")


def _sync(plan: Plan) -> list[str | Path]:
    """Install the locks whole; all from wheels, except what has none, whose build is held by hashes too."""
    arguments: list[str | Path] = ["pip", "sync", "--python", plan.python, "--require-hashes", *WHEELS]
    # Where PYTHONDONTWRITEBYTECODE is set, each process would compile what it imports: 5 s of a worker's 10.
    # This compiles all that is installed, torch too.
    arguments += ["--build-constraints", plan.build, "--compile-bytecode"]
    for name in plan.profile.software.source_only:
        arguments += ["--no-binary", name]
    return [*arguments, *plan.locks]


def _uv(arguments: list[str | Path], environment: dict[str, str], doing: str) -> None:
    uv.run(arguments, environment=environment, doing=doing)


def _marker(plan: Plan) -> dict[str, object]:
    return {
        "key": plan.key,
        "profile": plan.profile.name,
        "target": plan.target.name,
        "locks": {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in plan.locks},
        "root": str(root()),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "uv": uv.version(),
    }
