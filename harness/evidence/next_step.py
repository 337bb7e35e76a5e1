"""``verlock next``: what to run next, and why, from the records alone."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from harness.errors import RecordError
from harness.evidence import again, checklist, looks, standing, words
from harness.evidence.checklist import Task, Tick
from harness.evidence.model import Failure, Run, load
from harness.fingerprint import identity
from harness.profiles.load import load as load_profile

_HANG = "hang"
# A record's name; the commands call its folder runs/ID, wherever the records are.
_ID = r"\d{8}-\d{6}-\d{3}-[0-9a-f]{4}"


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
    last = next(reversed(standing.originals(found)), None)
    name = profile or (last.profile if last else "cpu")
    mine = [run for run in found if run.profile == name]
    chosen = task or infer(mine)
    loaded = load_profile(name)
    failed = standing.newest(mine) or standing.newest_failed(mine)
    ticks = checklist.of_task(
        chosen, found, profile=name, short=loaded.short, parts=identity.parts(loaded, None), failed=failed
    )
    command, why, run = step(chosen, mine, ticks, profile=name)

    def placed(text: str) -> str:
        return re.sub(rf"\bruns/(?={_ID})", lambda _found: f"{shlex.quote(str(runs))}/", text)

    ticks = [tick.model_copy(update={"command": placed(tick.command)}) for tick in ticks]
    command, why = placed(command), placed(why)
    return Next(
        task=chosen, profile=name, run=run, command=command, why=why, checklist=ticks, unreadable=unreadable
    )


def infer(runs: Sequence[Run]) -> Task:
    """What somebody is at: a failure that still stands, or what the newest record is of. Pure."""
    last = next(reversed(standing.originals(runs)), None)
    if last is None:
        return "local"
    if standing.newest(runs) is not None:
        return "failure"
    if checklist.overlaid(last):
        return "verl"
    return "handoff" if last.rehearsal or last.image else "local"


def step(
    task: Task, runs: Sequence[Run], ticks: Sequence[Tick], *, profile: str
) -> tuple[str, str, str | None]:
    """The command, why, and the record that says so. Pure."""
    last = next(reversed(standing.originals(runs)), None)
    if last is not None and last.status == "interrupted":
        at = last.rungs[-1].name if last.rungs else "its start"
        page = "" if last.ended else f"; `verlock report runs/{last.id}` makes the page of what there is"
        why = f"{last.id} was interrupted in {at}: it says nothing yet{page}"
        return shlex.join(words.whole(last)), why, last.id
    failed = standing.newest(runs) if task == "failure" else None
    if failed is not None and failed.failure:
        return (*_of_failure(failed, failed.failure, ticks), failed.id)
    todo = next((tick for tick in ticks if not tick.done), None)
    if todo is None:
        return _after(task, profile), "each item of this task is proven by a record of this state", None
    stale = f"; {todo.earlier} proved it with another lock, profile or harness" if todo.earlier else ""
    return todo.command, f"not yet proven: {todo.text}{stale}", todo.earlier


def _of_failure(run: Run, failure: Failure, ticks: Sequence[Tick]) -> tuple[str, str]:
    said = failure.cause.splitlines()[0] if failure.cause else "its cause"
    rung = checklist.failed_rung(run)
    narrow = shlex.join(words.between(run, rung, rung) if rung else words.whole(run))
    if any(tick.name == "rung" and tick.done for tick in ticks):
        return (
            shlex.join(words.whole(run)),
            f"{rung} passes now; {run.id} is answered when the command that failed passes whole",
        )
    if failure.signature == _HANG:
        return f"less runs/{run.id}/stacks.txt", f"it stood still: {said}"
    if failure.signature == "unknown":
        return (
            f"verlock localise runs/{run.id}",
            f"no signature knows {said!r}: runs that differ in one boundary show where it is",
        )
    if failure.fix:
        return narrow, f"{failure.signature}: {failure.fix.splitlines()[0]}; then run it again"
    command, why = looks.of(run, failure.failure_class)
    return command, f"{failure.signature}: {why}"


def _after(task: Task, profile: str) -> str:
    if task == "handoff":
        return f"nox -s handoff-{load_profile(profile).short}"
    return "verlock next --task handoff --profile a100"
