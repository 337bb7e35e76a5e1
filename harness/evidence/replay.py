"""``verlock replay RUN``: the recorded command in the recorded environment, and whether the same comes out.

A record that cannot be repeated proves nothing. So before anything starts, the environment here and the
user's files are held against those of the record: another one is refused, with what differs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from harness.errors import EnvironmentDiffersError, NotReproducedError, Problem
from harness.evidence import again, events, given, outcome
from harness.evidence.files import replace_text
from harness.evidence.model import Run, load
from harness.evidence.outcome import Parting
from harness.fingerprint import identity
from harness.profiles.load import load as load_profile

COMMANDS = ("climb", "preflight")
_HOST = ("system", "machine", "cpus", "memory_bytes", "gpu_names")


class Replayed(BaseModel):
    """What a replay came to: ``verlock replay --json``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    run: str
    replay: str
    reproduced: bool
    parting: Parting | None
    compared: dict[str, int]
    """How much was held against each other: rungs, and steps and values of verl's metrics."""
    status: str
    failure: str | None
    """The signature of the failure that came again, where the run had failed."""
    despite: list[str]
    """With ``--anyway``: what of environment and files is not that of the record."""
    notes: list[str]


def words_of(run: Run) -> list[str]:
    """The recorded command without the program's name; refuses what is no climb."""
    command = run.command[1:]
    if not command or command[0] not in COMMANDS:
        raise NotReproducedError(
            f"{' '.join(run.command[:2])} cannot be run again",
            where=f"{run.id}/run.json:command",
            why="a job of a cluster needs the cluster",
            todo=f"give a record of one of: {', '.join(COMMANDS)}",
        )
    if run.status == "interrupted":
        raise NotReproducedError(
            f"{run.id} was interrupted: there is no end that could come again",
            where=f"{run.id}/run.json:status",
            todo="climb anew; `verlock next` says with which words",
        )
    return command


def differences(run: Run, image: str | None) -> list[Problem]:
    """What of the environment and of the user's files is not as it was. Reads them all.

    Args:
        run: the record.
        image: the digest of the profile's image here, where the run was made in one.
    """
    found = list(_image(run, image)) if run.image else list(_environment(run))
    return found + (list(given.changed(run.given)) if run.given and not run.image else [])


def _image(run: Run, here: str | None) -> Iterator[Problem]:
    if run.image and run.image.manifest != here:
        yield Problem(
            what="the image here is not the one that the run was made in",
            why=f"it was {run.image.manifest}, and is {here or 'not built'}",
            todo="build it from the commit of the record: its digest is the same on any machine",
        )


def _environment(run: Run) -> Iterator[Problem]:
    then = run.fingerprint.get("parts")
    now = identity.parts(load_profile(run.profile), again.source(run))
    before: Mapping[str, Any] = then if isinstance(then, dict) else {}
    for name in sorted({*before, *now}):
        if before.get(name) != now.get(name):
            yield Problem(
                what=f"the {name.replace('_', ' ')} here is not that of the run",
                where=f"{run.id}/run.json:fingerprint.parts.{name}",
                why=f"then {_short(before.get(name))}, now {_short(now.get(name))}",
                todo="check out what the run was made with, or --anyway to see what the change does",
            )


def _short(part: Any) -> str:
    """A digest, or a checkout's commit and digest."""
    if isinstance(part, dict):
        return f"commit {str(part.get('commit'))[:12]}, files {str(part.get('files'))[:12]}"
    return str(part or "absent")[:12]


def refuse(problems: Sequence[Problem]) -> None:
    """Raise :class:`EnvironmentDiffersError` where there is one."""
    if problems:
        raise EnvironmentDiffersError(*problems)


def mark(folder: Path, *, of: Run) -> None:
    """Write into the new record what it repeats: it is no run that somebody asked for by itself."""
    run = load(folder).model_copy(update={"replays": of.replays or of.id})
    replace_text(folder / "run.json", run.json_text(), what="write the run record")


def judge(recorded: Path, replayed: Path, despite: Sequence[Problem]) -> Replayed:
    """Hold the two records against each other."""
    a, b = outcome.read(recorded), outcome.read(replayed)
    parted = outcome.parting(a, b)
    return Replayed(
        run=str(recorded),
        replay=str(replayed),
        reproduced=parted is None,
        parting=parted,
        compared={
            "rungs": len(a.run.rungs),
            "steps": sum(map(len, a.steps.values())),
            "values": sum(len(step.values) for steps in a.steps.values() for step in steps),
        },
        status=b.run.status,
        failure=b.run.failure.signature if b.run.failure else None,
        despite=[problem.what for problem in despite],
        notes=list(_notes(recorded, replayed, b.run)),
    )


def _notes(recorded: Path, replayed: Path, run: Run) -> Iterator[str]:
    then, now = (_host(folder) for folder in (recorded, replayed))
    other = [key for key in _HOST if then.get(key) != now.get(key)]
    if then and other:
        yield (
            f"the run was made on another machine ({', '.join(other)}): its CPU may round differently in the "
            "last bits"
        )
    if run.device != "cpu":
        yield f"on {run.device} kernels may add in another order each time: bits are promised on the CPU only"


def _host(folder: Path) -> Mapping[str, Any]:
    return next((e for e in events.read(folder / "events.jsonl") if e.get("kind") == "host"), {})


def failed(told: Replayed) -> NotReproducedError | None:
    """The error of a replay that came to something else."""
    if told.parting is None:
        return None
    return NotReproducedError(
        told.parting.line(),
        where=told.replay,
        why="; ".join([*told.despite, *told.notes])
        or "environment, command and files are those of the record",
        todo=f"verlock diff {told.run} {told.replay}",
    )
