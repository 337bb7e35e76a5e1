"""``verlock doctor``: gather, fix what is safe if asked, judge, and say so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness.build import budgets, lockfile
from harness.build.audit import limits
from harness.build.doctor import facts as model
from harness.build.doctor import fix, gather
from harness.build.doctor.evaluate import evaluate, suggest
from harness.build.doctor.finding import Finding, Measure
from harness.build.lock import folder
from harness.console import Output
from harness.errors import DoctorError, OverrideError, WrongMachineError
from harness.profiles import Profile, load

_STYLES = {"error": "bold red", "warning": "yellow", "info": "dim"}


def doctor(
    name: str | None, *, facts_file: Path | None, facts_only: bool, fixing: bool, runs: Path, output: Output
) -> int:
    """Examine this machine, or the one that a file describes, and return the exit code.

    Args:
        name: the profile; none chooses the one that the machine is for.
        facts_file: a description in place of this machine.
        facts_only: print the facts, and judge nothing.
        fixing: do what is safe for the findings that have such a remedy.
        runs: where run records are.
        output: where the report goes.

    Raises:
        OverrideError: a description that does not fit, or ``fixing`` another machine.
    """
    if facts_file and fixing:
        raise OverrideError(
            "--fix with --facts", why="another machine is described there", todo="leave one of them out"
        )
    facts = model.load(facts_file) if facts_file else gather.gather(load(name) if name else None, runs)
    profile = load(name or suggest(facts))
    if not facts_file and not name:
        facts = facts.model_copy(update={"environment": gather.environment(profile)})
    if facts_only:
        output.result(facts.model_dump(mode="json"), lambda: output.line(gather.write(facts).rstrip()))
        return 0
    findings = evaluate(facts, measure(profile, facts))
    fixed = fix.apply(findings, profile, runs=runs, output=output) if fixing else ()
    if fixed:
        facts = gather.gather(profile, runs)
        findings = evaluate(facts, measure(profile, facts))
    return _report(profile, findings, fixed, output)


def measure(profile: Profile, facts: model.Facts) -> Measure:
    """What the facts are held against: the profile, its lock for that machine, and its budget."""
    try:
        target = profile.target(facts.host.system, facts.host.machine)
    except WrongMachineError:
        return Measure(profile=profile, locked={}, limits=limits.load(), disk=0)
    path = folder(profile) / target.file
    pins = lockfile.parse(path.read_text(encoding="utf-8"), file=path.name) if path.is_file() else {}
    budget = budgets.load().get(profile.name)
    entry = budget.locks.get(target.name) if budget else None
    return Measure(
        profile=profile,
        locked={pin.name: pin.version for pin in pins.values()},
        limits=limits.load(),
        disk=entry.disk if entry else 0,
    )


def _report(profile: Profile, findings: tuple[Finding, ...], fixed: tuple[str, ...], output: Output) -> int:
    grave = [one for one in findings if one.severity == "error"]
    unknown = any(one.id == "facts.unknown" for one in findings)
    document: dict[str, Any] = {
        "profile": profile.name,
        "verdict": "cannot run" if grave else "can run as far as is known" if unknown else "can run",
        "fixed": list(fixed),
        "findings": [one.model_dump() for one in findings],
    }

    def human() -> None:
        for text in fixed:
            output.line(f"fixed    {text}", style="green")
        for one in findings:
            output.line(f"{one.severity:<8} {one.id}: {one.what}", style=_STYLES[one.severity])
            output.line(f"         why: {one.reason}")
            output.line(f"         do:  {one.remedy}")
        counts = {kind: sum(one.severity == kind for one in findings) for kind in _STYLES}
        told = ", ".join(
            f"{n} {kind}{'s' if n != 1 and kind != 'info' else ''}" for kind, n in counts.items() if n
        )
        verdict = "cannot run here" if grave else "can run here"
        limited = ", as far as is known" if unknown and not grave else ""
        output.line(f"{profile.name} {verdict}{limited}; {told or 'nothing to report'}")

    output.result(document, human)
    return DoctorError.exit_code if grave else 0
