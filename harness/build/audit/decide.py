"""From what libraries hold to what a card can run. Pure.

The unit is the loadable container, and the decision is by library: taken over a whole wheel, torch 2.8.0
would pass on a P40, since its linalg library still has sm_60, while libtorch_cuda.so has it in 0 of 393.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from typing import Literal

from harness.build.audit.fatbin import Code, Container
from harness.build.audit.gather import Package
from harness.build.audit.library import Library
from harness.build.audit.limits import Limits, number, older, uses
from harness.errors import Problem
from harness.profiles import Profile

Severity = Literal["runs", "unused", "unknown", "refused"]
"""``unused``: the card cannot run it, it is installed all the same, and nothing may call it.
``unknown``: a sample that met nothing to decide by."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One verdict."""

    severity: Severity
    subject: str
    """Package and version, or what else is judged."""
    what: str
    library: str | None = None
    why: str | None = None
    todo: str | None = None
    runs: int = 0
    """Containers that the card can load, of ``of``."""
    of: int = 0

    def problem(self) -> Problem:
        """As an error's part."""
        return Problem(what=f"{self.subject}: {self.what}", where=self.library, why=self.why, todo=self.todo)


def evaluate(
    packages: Iterable[Package], locked: Mapping[str, str], profile: Profile, limits: Limits
) -> tuple[Finding, ...]:
    """Everything that can be said about a profile's card.

    Args:
        packages: what was read.
        locked: name and version of every locked package; floors are applied to these.
        profile: whose card it is; one with a compute capability.
        limits: what is known beside.
    """
    architecture = number(profile.hardware.compute_capability or "0.0")
    findings: list[Finding] = []
    for package in packages:
        findings += [
            _library(package, library, architecture, profile, limits) for library in package.libraries
        ]
        findings += _without_code(package, architecture, profile, limits)
        findings += _built_for(package, architecture, limits)
    findings += _floors(locked, architecture, profile, limits)
    findings += _cuda(locked, architecture, profile, limits)
    return tuple(findings)


def share(containers: Mapping[Container, int], architecture: int) -> tuple[int, int]:
    """How many containers the card can load, of how many.

    Containers that hold one architecture each are alternatives of one another (cuFFT: one a kernel and
    architecture), so they count as the largest such group. What no driver loads counts not at all.
    """
    runs = of = 0
    alone: Counter[int] = Counter()
    alone_runs: Counter[int] = Counter()
    for container, count in containers.items():
        held = {code.architecture for code in container if code.kind != "other"}
        loads = any(code.runs_on(architecture) for code in container)
        if len(held) == 1:
            alone[min(held)] += count
            alone_runs[min(held)] += count if loads else 0
        elif held:
            of += count
            runs += count if loads else 0
    return runs + max(alone_runs.values(), default=0), of + max(alone.values(), default=0)


def _library(
    package: Package, library: Library, architecture: int, profile: Profile, limits: Limits
) -> Finding:
    runs, of = share(library.containers, architecture)
    used_by, reason = limits.use(package.name, library.name)
    subject = f"{package.name} {package.version}"
    base = library.name.rpartition("/")[2]
    if not of:
        return _unknown(subject, library, f"{base}: no device code in what was read of it")
    counted = f"{runs} of {of} containers{'' if library.complete else ' sampled'}"
    if runs and runs >= limits.share(package.name) * of:
        return Finding(
            severity="runs",
            subject=subject,
            library=library.name,
            what=f"{base}: {counted}, {_how(library, architecture)}",
            runs=runs,
            of=of,
        )
    needed = uses(profile, used_by)
    if needed and not library.complete and not limits.share(package.name):
        return _unknown(subject, library, f"{base}: none of {of} sampled containers is for sm_{architecture}")
    return Finding(
        severity="refused" if needed else "unused",
        subject=subject,
        library=library.name,
        what=f"{base} has {'no' if not runs else 'too little'} code for sm_{architecture} ({counted})",
        why=f"it holds {_held(library.codes)}" + ("" if needed else f"; not needed: {reason}"),
        todo=_todo(package.name, architecture, limits) if needed else None,
        runs=runs,
        of=of,
    )


def _unknown(subject: str, library: Library, what: str) -> Finding:
    """A sample decides nothing about what lies behind it."""
    return Finding(
        severity="unknown",
        subject=subject,
        library=library.name,
        what=what,
        why="only its beginning was fetched" if not library.complete else "it holds what no driver loads",
        todo="judge the whole of it with --wheel or --installed",
    )


def _how(library: Library, architecture: int) -> str:
    """Through which of its codes the library runs: the nearest SASS, else PTX that the driver compiles."""
    codes = [code for code in library.codes if code.runs_on(architecture)]
    sass = [code for code in codes if code.kind == "sass"]
    best: Code = max(sass or codes)
    return f"through {best}" + ("" if sass else ", compiled by the driver at first use")


def _held(codes: Iterable[Code]) -> str:
    return " ".join(str(code) for code in codes if code.kind != "other") or "nothing that a driver loads"


def _todo(package: str, architecture: int, limits: Limits) -> str:
    return limits.instead(package, architecture) or f"choose a version built for sm_{architecture}"


def _without_code(package: Package, architecture: int, profile: Profile, limits: Limits) -> list[Finding]:
    """A package that the run computes with must hold something to compute with: a CPU build does not."""
    entry = limits.package(package.name)
    if package.libraries or entry is None or not uses(profile, entry.used_by):
        return []
    return [
        Finding(
            severity="refused",
            subject=f"{package.name} {package.version}",
            what="holds no device code at all",
            why=f"{entry.reason} It is a build for CPUs, or not the package that it is called",
            todo=_todo(package.name, architecture, limits),
        )
    ]


def _built_for(package: Package, architecture: int, limits: Limits) -> list[Finding]:
    """torch says itself what it was built for; a sample that looks better than that is not believed."""
    codes = [_parse(word) for word in package.built_for]
    if not codes or any(code.runs_on(architecture) for code in codes):
        return []
    return [
        Finding(
            severity="refused",
            subject=f"{package.name} {package.version}",
            what=f"its list of architectures has nothing for sm_{architecture}",
            why=f"torch.cuda.get_arch_list() of this build is {' '.join(package.built_for)}",
            todo=_todo(package.name, architecture, limits),
        )
    ]


def _parse(word: str) -> Code:
    kind, _, rest = word.partition("_")
    digits = rest.rstrip("af")
    suffix = rest[len(digits) :]
    return Code(
        int(digits), "ptx" if kind == "compute" else "sass", "a" if suffix == "a" else "f" if suffix else ""
    )


def _floors(
    locked: Mapping[str, str], architecture: int, profile: Profile, limits: Limits
) -> Iterable[Finding]:
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


def _cuda(
    locked: Mapping[str, str], architecture: int, profile: Profile, limits: Limits
) -> Iterable[Finding]:
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
