"""Floors and ceilings: what refuses a card or a driver whatever the wheels hold. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatch

from harness.build.audit.finding import Finding
from harness.build.audit.limits import Limits, number, older, uses
from harness.profiles import Profile


def packages(
    locked: Mapping[str, str], architecture: int, profile: Profile, limits: Limits
) -> Iterable[Finding]:
    """Locked packages that need a newer card; refused if the run uses them, else named as unused."""
    for name, version in locked.items():
        fitting = (
            floor
            for floor in limits.floors
            if fnmatch(name, floor.package)
            and not (floor.from_version and older(version, floor.from_version))
            and architecture < number(floor.capability)
        )
        floor = next(fitting, None)
        if floor is None:
            continue
        needed = uses(profile, floor.used_by)
        yield Finding(
            severity="refused" if needed else "unused",
            subject=f"{name} {version}",
            what=f"needs compute capability {floor.capability}"
            + ("" if needed else "; it is installed and must not be used"),
            why=f"{floor.reason} ({floor.evidence})",
            todo="choose what does without it in the profile's run policy" if needed else None,
        )


def cuda(locked: Mapping[str, str], architecture: int, profile: Profile, limits: Limits) -> Iterable[Finding]:
    """The lock's CUDA release against the card and the drivers that the profile promises."""
    version = next((v for name, v in locked.items() if name.startswith("nvidia-cuda-runtime")), None)
    entry = next((one for one in limits.cuda if version and version.split(".")[0] == one.series), None)
    driver = profile.hardware.driver
    where = f"profiles/{profile.name}.yaml:hardware.driver"
    if version and entry and architecture < number(entry.capability):
        yield Finding(
            severity="refused",
            subject=f"CUDA {version}",
            what=f"makes no code for sm_{architecture}",
            why=f"it starts at compute capability {entry.capability} ({entry.evidence})",
            todo="lock a torch that is built for an older CUDA",
        )
    if version and entry and driver and older(driver.floor, entry.driver):
        yield Finding(
            severity="refused",
            subject=f"CUDA {version}",
            library=where,
            what=f"needs driver {entry.driver}, and the profile allows {driver.floor}",
            why=entry.evidence,
            todo=f"set hardware.driver.floor to {entry.driver}",
        )
    for branch in limits.drivers:
        if architecture >= number(branch.below) or driver is None:
            continue
        if driver.ceiling is None or older(branch.last, driver.ceiling):
            yield Finding(
                severity="refused",
                subject=f"driver {driver.ceiling or 'of any age'}",
                library=where,
                what=f"the last branch that knows sm_{architecture} is {branch.last}",
                why=branch.evidence,
                todo=f'set hardware.driver.ceiling to "{branch.last}"',
            )
