"""What must hold within a lock, and between the locks of all profiles. Pure: pins in, problems out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch

from harness.build.lockfile import Pin
from harness.errors import Problem
from harness.profiles.model import Profile
from harness.profiles.software import LockTarget

# What the harness needs inside (pyproject's core), and what installs it there.
INSIDE = ("psutil", "pydantic", "pyyaml", "rich", "setuptools", "typer")
REFERENCE = "cpu"


@dataclass(frozen=True, kw_only=True)
class Locked:
    """One lock with what it was made from."""

    profile: Profile
    target: LockTarget
    pins: Mapping[str, Pin]

    @property
    def file(self) -> str:
        """The lock as people name it."""
        return f"docker/rendered/{self.profile.home}/{self.target.file}"


def within(lock: Locked) -> list[Problem]:
    """Forbidden packages, missing ones, and pins that are not the profile's."""
    return [*_forbidden(lock), *_missing(lock), *_unfaithful(lock)]


def _forbidden(lock: Locked) -> Iterator[Problem]:
    for pin in lock.pins.values():
        for ban in lock.profile.numerics.forbidden.libraries:
            if fnmatch(pin.name, ban.name):
                yield Problem(
                    what=f"{pin.name} {pin.version} is forbidden by the profile ({ban.name})",
                    where=f"{lock.file}:{pin.line}:{pin.name}",
                    why=ban.reason,
                    todo="see who asks for it in its `via` lines; pin a version of that which does not",
                )


def _missing(lock: Locked) -> Iterator[Problem]:
    for name in INSIDE:
        if name not in lock.pins:
            yield Problem(
                what=f"{name} is not in the lock, and the harness needs it inside",
                where=lock.file,
                todo=f"add {name} to software.requirements of profiles/{lock.profile.stem}.yaml",
            )


def _unfaithful(lock: Locked) -> Iterator[Problem]:
    software = lock.profile.software
    wanted = {
        "verl": software.verl,
        "torch": lock.target.torch.version,
        "transformers": software.transformers,
        "ray": software.ray,
        "tensordict": software.tensordict,
    }
    for name, version in wanted.items():
        pin = lock.pins.get(name)
        if pin is None or pin.version != version:
            yield Problem(
                what=f"{name} is {pin.version if pin else 'absent'}, and the profile pins {version}",
                where=f"{lock.file}:{pin.line}:{name}" if pin else lock.file,
                todo=f"run `verlock lock {lock.profile.name}`",
            )


def between(locks: Iterable[Locked]) -> list[Problem]:
    """Packages that profiles share but lock at different versions without saying why.

    The cpu profile is the reference: what was shown to work there should be what runs elsewhere. A package
    that it lacks is compared with the first profile that has it. A reason for a difference that is no
    longer there is a problem too: it would excuse the next one unread.
    """
    ordered = sorted(
        locks, key=lambda lock: (lock.profile.name != REFERENCE, lock.profile.name, lock.target.file)
    )
    reference: dict[str, tuple[Locked, Pin]] = {}
    used: set[tuple[str, str]] = set()
    problems: list[Problem] = []
    for lock in ordered:
        for pin in lock.pins.values():
            other, theirs = reference.setdefault(pin.name, (lock, pin))
            if theirs.public_version == pin.public_version:
                continue
            used.add((lock.profile.name, pin.name))
            if pin.name not in lock.profile.software.differs:
                problems.append(_unexplained(lock, pin, other, theirs))
    return problems + [
        _idle(lock.profile, name) for lock in _one_each(ordered) for name in _idle_names(lock, used)
    ]


def _unexplained(lock: Locked, pin: Pin, other: Locked, theirs: Pin) -> Problem:
    return Problem(
        what=f"{pin.name} is {pin.version} here, and {theirs.version} in {other.profile.name}",
        where=f"{lock.file}:{pin.line}:{pin.name}",
        todo=f"agree on one version, or say why in software.differs of profiles/{lock.profile.stem}.yaml",
    )


def _one_each(locks: Iterable[Locked]) -> list[Locked]:
    return list({lock.profile.name: lock for lock in locks}.values())


def _idle_names(lock: Locked, used: set[tuple[str, str]]) -> list[str]:
    return [name for name in lock.profile.software.differs if (lock.profile.name, name) not in used]


def _idle(profile: Profile, name: str) -> Problem:
    return Problem(
        what=f"{name} does not differ from the other profiles, but a reason says that it does",
        where=f"profiles/{profile.name}.yaml:software.differs.{name}",
        todo="remove the reason",
    )
