"""``verlock next``: what to run next, and why, from the records alone."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from harness.errors import FailureClass, RecordError
from harness.evidence import again, checklist
from harness.evidence.checklist import Task, Tick
from harness.evidence.model import Failure, Run, load
from harness.fingerprint import identity
from harness.profiles.load import load as load_profile

# What looks into a fault of each class first, where no signature has named a fix.
_LOOK: Mapping[FailureClass, tuple[str, str]] = {
    "config": ("verlock climb --print-config", "a value is at fault: it shows who set which"),
    "data": (
        "verlock data check DATA --model MODEL",
        "it names row and column of what verl cannot read as meant",
    ),
    "model-logic": (
        "verlock climb --from forward --to reward",
        "the mathematics, generation and scoring alone take seconds and need no Ray",
    ),
    "backend": (
        "verlock doctor --profile {profile}",
        "it holds driver, card and libraries against the profile",
    ),
    "distributed": ("verlock localise runs/{run}", "it finds whether the failure goes away without Ray"),
    "resource": (
        "verlock plan memory {profile}",
        "it adds up what each phase takes, and names what to change",
    ),
    "environment": ("verlock doctor --profile {profile}", "it holds this machine against the profile"),
}
_HANG = "hang"


class Next(BaseModel):
    """What to do: ``verlock next --json``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    task: Task
    profile: str
    run: str | None
    """The record that the advice rests on."""
    command: str
    why: str
    checklist: list[Tick]
    unreadable: list[str]
    """Records that could not be read, and are left out."""


def records(runs: Path) -> tuple[list[Run], list[str]]:
    """All records, the oldest first, and those that cannot be read."""
    found, unreadable = list[Run](), list[str]()
    for folder in again.records(runs):
        try:
            found.append(load(folder))
        except RecordError:
            unreadable.append(folder.name)
    return sorted(found, key=lambda run: run.started), unreadable


def advise(runs: Path, *, task: Task | None, profile: str | None) -> Next:
    """Read the records and advise. Raises what a profile's loading raises."""
    found, unreadable = records(runs)
    last = found[-1] if found else None
    name = profile or (last.profile if last else "cpu")
    mine = [run for run in found if run.profile == name]
    chosen = task or infer(mine)
    loaded = load_profile(name)
    failed = next((run for run in reversed(mine) if run.status == "failed"), None)
    ticks = checklist.of_task(
        chosen, found, profile=name, short=loaded.short, parts=identity.parts(loaded, None), failed=failed
    )
    command, why, run = step(chosen, mine, ticks, profile=name)
    return Next(
        task=chosen, profile=name, run=run, command=command, why=why, checklist=ticks, unreadable=unreadable
    )


def infer(runs: Sequence[Run]) -> Task:
    """What somebody is at, by the newest record. Pure."""
    last = runs[-1] if runs else None
    if last is None:
        return "local"
    if last.status == "failed":
        return "failure"
    if checklist.overlaid(last):
        return "verl"
    return "handoff" if last.rehearsal or last.image else "local"


def step(
    task: Task, runs: Sequence[Run], ticks: Sequence[Tick], *, profile: str
) -> tuple[str, str, str | None]:
    """The command, why, and the record that says so. Pure."""
    last = runs[-1] if runs else None
    if last is not None and last.status == "interrupted":
        at = last.rungs[-1].name if last.rungs else "its start"
        return shlex.join(last.command), f"{last.id} was interrupted in {at}: it says nothing yet", last.id
    if task == "failure" and last is not None and last.status == "failed" and last.failure:
        return (*_of_failure(last, last.failure, profile), last.id)
    todo = next((tick for tick in ticks if not tick.done), None)
    if todo is None:
        return _after(task, profile), "each item of this task is proven by a record of this state", None
    stale = f"; {todo.earlier} proved it with another lock, profile or harness" if todo.earlier else ""
    return todo.command, f"not yet proven: {todo.text}{stale}", todo.earlier


def _of_failure(run: Run, failure: Failure, profile: str) -> tuple[str, str]:
    said = failure.cause.splitlines()[0] if failure.cause else "its cause"
    if failure.signature == _HANG:
        return f"less runs/{run.id}/stacks.txt", f"it stood still: {said}"
    if failure.signature == "unknown":
        return (
            f"verlock localise runs/{run.id}",
            f"no signature knows {said!r}: runs that differ in one boundary show where it is",
        )
    rung = next((r.name for r in run.rungs if r.status == "failed"), None)
    if failure.fix and rung:
        first = failure.fix.splitlines()[0]
        return f"verlock replay runs/{run.id} --anyway", f"{failure.signature}: {first}; then run it again"
    command, why = _LOOK[failure.failure_class]
    return command.format(profile=profile, run=run.id), f"{failure.signature}: {why}"


def _after(task: Task, profile: str) -> str:
    if task == "handoff":
        return f"nox -s handoff-{load_profile(profile).short}"
    return "verlock next --task handoff --profile a100"
