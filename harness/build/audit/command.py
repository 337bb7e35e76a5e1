"""``verlock audit``: read the wheels of a profile's lock, judge them, and say so."""

from __future__ import annotations

import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from packaging.tags import Tag

from harness.build import files, index, lockfile, resolve, sources
from harness.build.audit import decide, gather, limits
from harness.build.audit.finding import Finding
from harness.build.lock import folder
from harness.build.web import Web
from harness.console import Output
from harness.errors import AuditError, LockError, OverrideError
from harness.profiles import LockTarget, Profile, load

_Wanted = tuple[str, str, tuple[str, ...]]  # name, version, allowed hashes
_TOGETHER = 4  # wheels at a time: each holds one open library, a few MiB


@dataclass(frozen=True, kw_only=True)
class Read:
    """What was read, and what it cost."""

    source: str
    packages: tuple[gather.Package, ...]
    locked: dict[str, str]
    seconds: float
    transferred: int
    """Bytes over the network."""
    requests: int = 0


def audit(
    name: str,
    *,
    output: Output,
    wheels: Iterable[Path] = (),
    installed: Path | None = None,
    torch: str | None = None,
) -> int:
    """Audit a profile, report, and return the exit code.

    Args:
        name: the profile.
        output: where the report goes.
        wheels: judge these files in place of the lock's.
        installed: judge what this interpreter's environment holds.
        torch: judge this version of torch, from the index, in place of the locked one.

    Raises:
        AuditError: something the run needs cannot run on the card, or cannot be judged.
        OverrideError: a file that is no wheel, an environment without torch, or nothing to judge them for.
        LockError: no lock, or an index that does not answer.
    """
    profile = load(name)
    chosen = list(wheels)
    if profile.hardware.accelerator != "cuda":
        _refuse_to_ignore(
            profile, {"--wheel": bool(chosen), "--installed": bool(installed), "--torch": bool(torch)}
        )
        document = {"profile": profile.name, "verdict": "nothing to audit", "findings": []}
        why = f"{profile.name} has no CUDA card (accelerator: {profile.hardware.accelerator})"
        output.result(document, lambda: output.line(f"nothing to audit: {why}"))
        return 0
    target = next(one for one in profile.software.targets if one.system == "linux")
    if chosen:
        read = _from_files(profile, target, chosen)
    elif installed:
        read = _from_environment(installed)
    else:
        read = _from_index(profile, target, torch, output)
    findings = decide.evaluate(read.packages, read.locked, profile, limits.load())
    return _report(profile, read, findings, output)


def _refuse_to_ignore(profile: Profile, given: dict[str, bool]) -> None:
    if options := [option for option, there in given.items() if there]:
        raise OverrideError(
            f"{options[0]} with a profile that has no CUDA card",
            where=profile.name,
            why=f"its accelerator is {profile.hardware.accelerator}: there is no card that could refuse it",
            todo="name the profile whose card must run it, or leave the option out",
        )


def _locked(profile: Profile, target: LockTarget) -> dict[str, lockfile.Pin]:
    path = folder(profile) / target.file
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise LockError("there is no lock", where=files.shown(path), todo="make it: `verlock lock`") from None
    lockfile.check_seal(text, file=files.shown(path))
    return lockfile.parse(text, file=files.shown(path))


def _from_files(profile: Profile, target: LockTarget, paths: list[Path]) -> Read:
    started = time.monotonic()
    if problems := [problem for path in paths if (problem := gather.unfit(path))]:
        raise OverrideError(*problems)
    packages = tuple(gather.wheel(path) for path in paths)
    locked = {name: pin.version for name, pin in _locked(profile, target).items()}
    locked |= {package.name: package.version for package in packages}
    seconds = time.monotonic() - started
    return Read(source="files", packages=packages, locked=locked, seconds=seconds, transferred=0)


def _from_environment(python: Path) -> Read:
    started = time.monotonic()
    packages, versions = gather.installed(python)
    if "torch" not in versions:
        raise OverrideError(
            f"no torch is installed for {python}",
            why="an environment without it passes every audit and trains nothing",
            todo="give the environment's interpreter, as `verlock env PROFILE` prints it",
        )
    seconds = time.monotonic() - started
    return Read(
        source="environment", packages=tuple(packages), locked=versions, seconds=seconds, transferred=0
    )


def _from_index(profile: Profile, target: LockTarget, torch: str | None, output: Output) -> Read:
    started = time.monotonic()
    pins = _locked(profile, target)
    here = sources.here()
    known = limits.load()
    tags = index.target_tags(profile, target)
    wanted: list[_Wanted] = (
        [("torch", torch, ())]
        if torch
        else [(pin.name, pin.version, pin.hashes) for pin in pins.values() if known.package(pin.name)]
    )
    output.line(f"reading samples of {len(wanted)} package{'s'[: len(wanted) != 1]} on the index")
    with Web(here) as web, ThreadPoolExecutor(_TOGETHER) as pool:
        first = None if torch else resolve.torch_index(target, here)
        places = index.Index(web, here, first=first)

        def one(pin: _Wanted) -> gather.Package:
            entry = known.package(pin[0])
            skip = tuple(entry.without_code) if entry else ()
            return gather.remote(web, _offer(places, pin, tags), skip=skip)

        packages = tuple(pool.map(one, wanted))
    return Read(
        source="index",
        packages=packages,
        locked={"torch": torch} if torch else {name: pin.version for name, pin in pins.items()},
        seconds=time.monotonic() - started,
        transferred=web.meter.bytes,
        requests=web.meter.requests,
    )


def _offer(places: index.Index, pin: _Wanted, tags: list[Tag]) -> index.Offer:
    name, version, hashes = pin
    found = places.find(name, version=version, hashes=hashes, tags=tags)
    if found is None or not found.name.endswith(".whl"):
        raise LockError(
            f"the index has no wheel of {name} {version} for this profile",
            why="none fits the profile's Python and platform" + (" and the lock's hashes" if hashes else ""),
            todo="give another version, or a file with --wheel",
        )
    return found


def _report(profile: Profile, read: Read, findings: tuple[Finding, ...], output: Output) -> int:
    refused = [finding for finding in findings if finding.severity == "refused"]
    megabytes = read.transferred / 1e6
    document: dict[str, Any] = {
        "profile": profile.name,
        "compute_capability": profile.hardware.compute_capability,
        "verdict": "refused" if refused else "passed",
        "source": read.source,
        "seconds": round(read.seconds, 2),
        "megabytes": round(megabytes, 2),
        "requests": read.requests,
        "packages": [_shown(package) for package in read.packages],
        "findings": [asdict(finding) for finding in findings],
    }

    def human() -> None:
        for finding in findings:
            output.line(f"{finding.severity:<8} {finding.subject}: {finding.what}")
            if finding.severity in ("unused", "unknown") and finding.why:
                output.line(f"         {finding.why}")
        cost = f"{read.seconds:.1f} s" + (f", {megabytes:.1f} MB transferred" if read.requests else "")
        verdict = "cannot run this" if refused else "runs this"
        output.line(
            f"{profile.name} (compute capability {profile.hardware.compute_capability}) {verdict}; {cost}"
        )

    output.result(document, human)
    if not refused:
        return 0
    if not output.as_json:
        output.error(AuditError(*(finding.problem() for finding in refused)))
    return AuditError.exit_code


def _shown(package: gather.Package) -> dict[str, Any]:
    return {
        "name": package.name,
        "version": package.version,
        "origin": package.origin,
        "built_for": list(package.built_for),
        "libraries": [
            {
                "name": library.name,
                "complete": library.complete,
                "containers": [
                    {"count": count, "codes": [str(code) for code in sorted(container)]}
                    for container, count in sorted(library.containers.items(), key=lambda item: -item[1])
                ],
            }
            for library in package.libraries
        ],
    }
