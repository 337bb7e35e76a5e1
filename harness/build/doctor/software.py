"""Checks of the software: the environment against its lock, torch, Ray, MPS, the engine. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatch

from harness.build.audit import floors
from harness.build.audit.limits import number
from harness.build.doctor.facts import Facts
from harness.build.doctor.finding import Finding, Measure

_MAKE = "`verlock doctor --fix` makes it from the lock; so does the first session"
_SHOWN = 3


def environment(facts: Facts, against: Measure) -> Iterator[Finding]:
    """Made, what the lock says, nothing forbidden, and importable."""
    made = facts.environment
    if not facts.told("environment"):
        return
    if made is None:
        yield Finding(
            id="environment.missing",
            severity="warning",
            what=f"the environment of {against.profile.name} is not made yet",
            reason=f"nothing was installed from its lock ({len(against.locked)} packages)",
            remedy=_MAKE,
        )
        return
    wanted = against.profile.software.python
    off = [] if made.python.startswith(f"{wanted}.") else [f"Python {made.python} instead of {wanted}"]
    off += [
        f"{name} {made.packages.get(name, 'missing')} instead of {version}"
        for name, version in sorted(against.locked.items())
        if made.packages.get(name) != version
    ]
    if off:
        more = f" and {len(off) - _SHOWN} more" if len(off) > _SHOWN else ""
        yield Finding(
            id="environment.differs",
            severity="error",
            what=f"the environment is not what the lock says: {', '.join(off[:_SHOWN])}{more}",
            reason="what is proven holds for the locked versions alone",
            remedy="`verlock doctor --fix` makes it anew; by hand: `verlock env PROFILE --fresh`",
        )
    for ban in against.profile.numerics.forbidden.libraries:
        for name in sorted(name for name in made.packages if fnmatch(name, ban.name)):
            yield Finding(
                id="environment.forbidden",
                severity="error",
                what=f"{name} {made.packages[name]} is installed, and the profile forbids it",
                reason=ban.reason,
                remedy="`verlock env PROFILE --fresh` makes the environment without it",
            )
    yield from _imports(facts)


def _imports(facts: Facts) -> Iterator[Finding]:
    made = facts.environment
    if made and made.torch is None:
        yield Finding(
            id="environment.torch",
            severity="error",
            what="torch cannot be imported",
            reason=made.torch_error or "it is not installed",
            remedy="`verlock env PROFILE --fresh`; a missing .so is a library of the system or the driver",
        )
    if made and made.ray is None:
        yield Finding(
            id="environment.ray",
            severity="error",
            what="Ray cannot be imported",
            reason=made.ray_error or "it is not installed",
            remedy="`verlock env PROFILE --fresh`; a folder named ray in the way hides it",
        )


def wheels(_: Facts, against: Measure) -> Iterator[Finding]:
    """Locked packages that the profile's card cannot run, by their own floors."""
    capability = against.profile.hardware.compute_capability
    if capability is None:
        return
    architecture = number(capability)
    for one in (
        *floors.packages(against.locked, architecture, against.profile, against.limits),
        *floors.cuda(against.locked, architecture, against.profile, against.limits),
    ):
        if one.severity == "refused":
            yield Finding(
                id="wheels.refused",
                severity="error",
                what=f"{one.subject} {one.what}",
                reason=one.why or "its wheel holds no kernels for the card",
                remedy=one.todo or "run `verlock audit`, and lock another version",
            )


def mps(facts: Facts, against: Measure) -> Iterator[Finding]:
    """What MPS cannot do on this path, and whether it is there for what it can: the rollout."""
    hardware = against.profile.hardware
    if hardware.accelerator != "mps":
        return
    for name, reason in hardware.cannot.items():
        yield Finding(
            id="mps.cannot",
            severity="info",
            what=f"not on MPS: {name}",
            reason=reason,
            remedy="nothing to do: the profile trains on the CPU, and only the rollout may be given MPS",
        )
    torch = facts.environment.torch if facts.environment else None
    if torch is None:
        return
    if not torch.mps.built:
        yield Finding(
            id="mps.built",
            severity="warning",
            what=f"torch {torch.version} is built without MPS",
            reason="a Linux build, as in a container on a Mac, never has it: Metal is not exposed there",
            remedy="run natively on macOS, from the profile's macOS lock",
        )
    elif not torch.mps.available:
        yield Finding(
            id="mps.available",
            severity="warning",
            what="torch was built with MPS, and finds no device",
            reason="macOS before 14, or a virtual machine without Metal",
            remedy="the climb works on the CPU all the same; `--device mps` does not",
        )
    elif torch.mps.tensor != "ok":
        yield Finding(
            id="mps.tensor",
            severity="warning",
            what="a product of two tensors on MPS failed",
            reason=torch.mps.tensor or "it was not tried",
            remedy="update macOS; until then leave `--device mps` out",
        )


def engine(facts: Facts, against: Measure) -> Iterator[Finding]:
    """A container engine: needed for a GPU profile's smoke and for every image, else not."""
    if not facts.told("engines") or any(one.usable for one in facts.engines):
        return
    needed = against.profile.run.device == "cuda"
    first = facts.engines[0] if facts.engines else None
    yield Finding(
        id="engine.none",
        severity="error" if needed else "info",
        what="no container engine can build here",
        reason=f"{first.title}: {first.missing}" if first else "neither docker nor podman is on PATH",
        remedy=(first.remedy if first and first.remedy else "install one (Debian: apt-get install docker.io)")
        + ("" if needed else "; the smoke runs without one, only images need it"),
    )
