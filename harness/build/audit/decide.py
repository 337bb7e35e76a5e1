"""From what libraries hold to what a card can run. Pure.

The unit is the loadable container, and the decision is by library: taken over a whole wheel, torch 2.8.0
would pass on a P40, since its linalg library still has sm_60, while libtorch_cuda.so has it in 0 of 393.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from harness.build.audit import floors
from harness.build.audit.fatbin import Code, Container
from harness.build.audit.finding import Finding
from harness.build.audit.gather import Package
from harness.build.audit.library import Library
from harness.build.audit.limits import Limits, number, uses
from harness.profiles import Profile


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
        findings += _missing(package, profile, limits)
        findings += _without_code(package, architecture, profile, limits)
        findings += _built_for(package, architecture, limits)
    findings += floors.packages(locked, architecture, profile, limits)
    findings += floors.cuda(locked, architecture, profile, limits)
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


def _missing(package: Package, profile: Profile, limits: Limits) -> list[Finding]:
    """A library that was taken away cannot be judged, and what is left must not speak for it."""
    return [
        Finding(
            severity="refused",
            subject=f"{package.name} {package.version}",
            library=name,
            what=f"{name.rpartition('/')[2]} is not there",
            why="the package's RECORD names it",
            todo="make the environment again: `verlock env`",
        )
        for name in package.missing
        if uses(profile, limits.use(package.name, name)[0])
    ]


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
            why="it is a build for CPUs, or not the package that its name says",
            todo=f"take a build for CUDA; {_todo(package.name, architecture, limits)}",
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
