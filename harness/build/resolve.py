"""One resolution: a profile's target in, the body of a lock out. Here, and only here, an index is asked."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

from harness.build import lockfile, uv
from harness.build.sources import Sources
from harness.errors import LockError
from harness.profiles import LockTarget, Profile, root

TORCH_INDEX = "VERLOCK_TORCH_INDEX"
"""Variable that replaces the profile's address of the torch index, for those who mirror it."""


WITHOUT_TORCH = """[tool.uv]
override-dependencies = ["torch; sys_platform == 'never'"]
"""


def requirements(profile: Profile, target: LockTarget) -> list[str]:
    """What is resolved, as pip writes it."""
    software = profile.software
    extras = f"[{','.join(software.verl_extras)}]" if software.verl_extras else ""
    return [
        f"verl{extras}=={software.verl}",
        f"torch=={target.torch.version}",
        f"transformers=={software.transformers}",
        f"ray=={software.ray}",
        f"tensordict=={software.tensordict}",
        *software.requirements,
    ]


def torch_index(target: LockTarget, sources: Sources) -> str | None:
    """The index to take torch from, where it is not on the default one and no folder here offers it."""
    if target.torch.index is None or sources.offers("torch", target.torch.version):
        return None
    return os.environ.get(TORCH_INDEX) or target.torch.index


def project(name: str, dependencies: list[str], *, python: str, index: str | None) -> str:
    """A pyproject.toml for uv. Only there can a package be given an index of its own: numpy is on both."""
    lines = [
        "[project]",
        f"name = {json.dumps(name)}",
        'version = "0"',
        f'requires-python = "=={python}.*"',
        f"dependencies = {json.dumps(dependencies, indent=2)}",
    ]
    if index:
        lines += ["[tool.uv.sources]", 'torch = { index = "torch" }']
        lines += ["[[tool.uv.index]]", 'name = "torch"', f"url = {json.dumps(index)}", "explicit = true"]
    return "\n".join(lines) + "\n"


def _project(profile: Profile) -> str:
    """A name that Python packaging takes; the `via` lines of the lock have it."""
    return f"verlock-{profile.name.replace('@', '-')}"


def small_lock(profile: Profile, wanted: list[str], sources: Sources, *, cutoff: str) -> str:
    """The body of a lock of one or two tools that are the same on every platform."""
    given = project("tools", wanted, python=profile.software.python, index=None)
    doing = f"locking {', '.join(wanted)} for {profile.name}"
    return _compile(given, profile, None, sources, ["--only-binary", ":all:"], {}, doing=doing, cutoff=cutoff)


def target_lock(profile: Profile, target: LockTarget, build: str, sources: Sources) -> str:
    """The body of a target's lock, with the profile's own hashes for torch.

    Raises:
        LockError: unresolvable, or what was found is not what the profile says.
    """
    index = torch_index(target, sources)
    wanted = requirements(profile, target)
    given = project(_project(profile), wanted, python=profile.software.python, index=index)
    arguments, files = _binaries(profile, target), {"build.lock": build}
    platform = target.python_platform
    doing = f"locking {profile.name} for {platform}"
    body = _compile(given, profile, platform, sources, arguments, files, doing=doing)
    if target.same_pins_on:
        # A folder of wheels holds torch for one machine only, so the comparison leaves torch out.
        bare = project(_project(profile), wanted, python=profile.software.python, index=None) + WITHOUT_TORCH
        bodies = {
            other: _compile(
                bare, profile, other, sources, arguments, files, doing=f"locking {profile.name} for {other}"
            )
            for other in (platform, *target.same_pins_on)
        }
        _same_everywhere(profile, bodies)
    return _with_own_torch(body, profile, target)


def dev_lock(profile: Profile, target: LockTarget, lock: str, build: str, sources: Sources) -> str:
    """The lock of the development tools: pyproject's extras and test group, under the profile's pins."""
    files = {"build.lock": build, "requirements.lock": lock}
    arguments = [
        "--extra",
        "host",
        "--extra",
        "dev",
        "--group",
        "tests",
        "--constraints",
        "requirements.lock",
    ]
    arguments += _binaries(profile, target)
    given = (root() / "pyproject.toml").read_text(encoding="utf-8")
    doing = f"locking the development tools for {target.python_platform}"
    cutoff = profile.software.exclude_newer_tools or profile.software.exclude_newer
    body = _compile(
        given, profile, target.python_platform, sources, arguments, files, doing=doing, cutoff=cutoff
    )
    locked = lockfile.parse(lock, file=target.file)
    # What the profile's lock has already is installed from there.
    pins = lockfile.parse(body, file=target.dev_file or "")
    return "".join(pin.text for name, pin in pins.items() if name not in locked)


def _binaries(profile: Profile, target: LockTarget) -> list[str]:
    arguments = ["--only-binary", ":all:", "--build-constraints", "build.lock"]
    for name in profile.software.source_only:
        arguments += ["--no-binary", name]
    if target.torch.index:
        # The PyTorch index gives no upload times; its wheels are held by the profile's hashes instead.
        arguments += ["--exclude-newer-package", "torch=false"]
    return arguments


def _compile(
    given: str,
    profile: Profile,
    platform: str | None,
    sources: Sources,
    arguments: list[str],
    files: dict[str, str],
    *,
    doing: str,
    cutoff: str | None = None,
) -> str:
    """Run uv in a folder of its own, with relative names: neither path nor address reaches the result."""
    software = profile.software
    environment = sources.environment()
    if software.macos_floor and platform and "darwin" in platform:
        environment["MACOSX_DEPLOYMENT_TARGET"] = software.macos_floor
    with tempfile.TemporaryDirectory(prefix="verlock-lock-") as name:
        folder = Path(name)
        for file, text in {"pyproject.toml": given, **files}.items():
            (folder / file).write_text(text, encoding="utf-8")
        command = [
            "pip",
            "compile",
            "pyproject.toml",
            "--python-version",
            software.python,
            "--generate-hashes",
        ]
        command += ["--no-header", "--exclude-newer", cutoff or software.exclude_newer, *arguments]
        if platform:
            command += ["--python-platform", platform]
        return uv.run(command, environment=environment, cwd=folder, doing=doing)


def _same_everywhere(profile: Profile, bodies: dict[str, str]) -> None:
    (first, reference), *others = bodies.items()
    pins = lockfile.parse(reference, file=first)
    for platform, body in others:
        theirs = lockfile.parse(body, file=platform)
        # The index lists the hashes of all of a release's wheels, so equal versions have equal hashes.
        differing = sorted(
            name
            for name in pins.keys() | theirs.keys()
            if _version(pins.get(name)) != _version(theirs.get(name))
        )
        if differing:
            raise LockError(
                f"{profile.name}: {platform} resolves to other pins than {first}",
                why=", ".join(
                    f"{name} {_version(pins.get(name))} / {_version(theirs.get(name))}" for name in differing
                ),
                todo="give the platform a lock target of its own",
            )


def _version(pin: lockfile.Pin | None) -> str | None:
    return pin.version if pin else None


def _with_own_torch(body: str, profile: Profile, target: LockTarget) -> str:
    """Replace the hashes that uv found for torch: a folder of wheels shows it one machine's wheel only."""
    own = target.torch.hashes
    if not own:
        return body
    pin = lockfile.parse(body, file=target.file)["torch"]
    if strange := sorted(set(pin.hashes) - set(own)):
        raise LockError(
            f"torch {pin.version}: the wheel found here is none of those that the profile names",
            where=f"profiles/{profile.stem}.yaml:software.targets",
            why=f"its sha256 is {', '.join(strange)}",
            todo="remove that wheel, or, if it is the right one, add its hash to the profile",
        )
    notes = [line for line in pin.text.splitlines() if "#" in line]
    hashes = [f"    --hash=sha256:{digest}" for digest in sorted(own)]
    return body.replace(
        pin.text, " \\\n".join([f"torch=={pin.version}", *hashes]) + "\n" + "\n".join(notes) + "\n"
    )
