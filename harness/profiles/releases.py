"""A profile with another verl: the same machine, contract and policy, other software. Pure.

Named ``cpu@0.8.0`` wherever a profile is named. How its Hydra keys are written is not said here but in
``harness/adapt/verls.py``: a profile is written for its own verl.
"""

from __future__ import annotations

import re

from harness.errors import UnknownVerlError
from harness.profiles.model import Profile
from harness.profiles.software import Release

MARK = "@"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def named(profile: str, verl: str | None) -> str:
    """The name of ``profile`` with that verl; none leaves the name as it is."""
    return profile if verl is None else f"{profile.partition(MARK)[0]}{MARK}{verl}"


def versions(profile: Profile) -> tuple[str, ...]:
    """Every verl that the profile has a lock for, its own first."""
    return (profile.software.verl, *(release.verl for release in profile.software.also))


def names(profile: Profile) -> tuple[str, ...]:
    """The profile and its variants, by name."""
    return (profile.name, *(named(profile.name, release.verl) for release in profile.software.also))


def is_variant(profile: Profile) -> bool:
    """Whether its verl is another than the profile's own."""
    return MARK in profile.name


def at(profile: Profile, verl: str) -> Profile:
    """The profile with ``verl``; itself where that is its own.

    Raises :class:`UnknownVerlError` with the list of those that have a lock.
    """
    if verl == profile.software.verl:
        return profile
    release = next((one for one in profile.software.also if one.verl == verl), None)
    if release is None:
        raise UnknownVerlError(
            f"profile {profile.name} has no lock for verl {verl!r}",
            where=f"profiles/{profile.name}.yaml:software.also",
            why=f"it has locks for {', '.join(versions(profile))}",
            todo="choose one of them, or add it under software.also and run `verlock lock`; "
            "--verl-source PATH lays a checkout over the profile's own verl",
        )
    return _with(profile, release)


def _with(profile: Profile, release: Release) -> Profile:
    software = profile.software
    kept = [one for one in software.requirements if package(one) not in map(package, release.without)]
    changes = {
        "verl": release.verl,
        "transformers": release.transformers,
        "ray": release.ray or software.ray,
        "tensordict": release.tensordict or software.tensordict,
        "requirements": (*kept, *release.requirements),
        "also": (),
        # The development tools are for the tests, which run with the profile's own verl.
        "targets": tuple(target.model_copy(update={"dev_file": None}) for target in software.targets),
    }
    update = {"name": named(profile.name, release.verl), "software": software.model_copy(update=changes)}
    return profile.model_copy(update=update)


def package(requirement: str) -> str:
    """``transferqueue`` of ``TransferQueue>=0.1.10``."""
    found = _NAME.match(requirement)
    return found[0].lower() if found else requirement.lower()
