"""Climbs the ladder: rung after rung, recorded as it happens, until the top or the first that fails."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, TextIO, cast

from harness.adapt.contract.terms import Terms
from harness.adapt.settings import Settings
from harness.console import Output
from harness.diagnose.diagnose import HOST_EVENT
from harness.diagnose.host import here
from harness.errors import HangError, InterruptedRunError, RungFailedError, VerlockError
from harness.evidence import events, given, stacks
from harness.evidence.abandoned import sweep_abandoned, sweep_ray_folders
from harness.evidence.model import Failure, Run, Status
from harness.evidence.processes import sweep
from harness.evidence.record import RunRecord
from harness.evidence.sampler import Sampler
from harness.fingerprint import lock
from harness.fingerprint.identity import fingerprint
from harness.ladder import cause, contract, environment, stopped, watch
from harness.ladder.context import Context, Verified
from harness.ladder.options import ClimbOptions
from harness.ladder.place import title, unverified
from harness.ladder.precision import collect, write_precision
from harness.ladder.quiet import captured
from harness.profiles.load import load
from harness.profiles.model import Profile
from harness.warm.fork import Fork, start
from harness.warm.joined import Joined
from harness.warm.told import from_watch

_TRAINERS = ("ppo", "checkpoint", "learn")
Step = tuple[str, Callable[[Context], Verified]]


def climb(
    options: ClimbOptions,
    steps: Sequence[Step],
    output: Output,
    command: Sequence[str],
    complete: Callable[[Path], object],
) -> Run:
    """Run ``steps`` in order under one record; returns the finished record.

    ``complete`` is called with the run folder at the end, whatever the end was: it makes the report.

    The first that fails ends the climb: its error is recorded, then raised.
    """
    profile = load(options.profile)
    device = options.place.device
    settings = Settings(
        device=device,
        rollout_device=device,
        attention=profile.numerics.attention,
        without_patches=options.without_patches,
        stop=options.stop.text() if options.stop else "",
        log_level=options.log_level,
        terms=Terms.of(profile, options.contract) if options.contract else None,
    )
    sweep_abandoned(options.runs)
    sweep_ray_folders()
    within = from_watch()
    run_id = within.run_id if within else None
    record = RunRecord.create(options.runs, profile=profile.name, command=command, run_id=run_id)
    # Before our own variables are among them; in a watch they are.
    ours = environment.variables(profile, settings, {}) if within else {}
    theirs = {name: value for name, value in os.environ.items() if name not in ours}
    record.update(given=given.of(options.files(), theirs))
    os.environ |= environment.variables(profile, settings, record.environment())
    if within:
        from harness.warm.proof import repeat  # it imports torch, which is there already

        repeat()
    events.emit(HOST_EVENT, **here().model_dump())
    try:
        _say_where(options, profile, output, record)
        record.update(
            lock=lock.named(profile), fingerprint=fingerprint(profile, options.verl_source, record.folder)
        )
        _climb(options, steps, output, profile, settings, record)
    except VerlockError as error:
        _end(record, "interrupted" if isinstance(error, InterruptedRunError) else "failed", error)
        error.run = str(record.folder)
        raise
    except KeyboardInterrupt as asked:
        by = str(asked) or "SIGINT"
        told = InterruptedRunError(f"the climb was ended by {by}", todo="start it again; the record is kept")
        told.by = by
        _end(record, "interrupted", told)
        told.run = str(record.folder)
        raise told from None
    else:
        _end(record, "passed", None)
    finally:
        complete(record.folder)
    return record.run


def _climb(
    options: ClimbOptions,
    steps: Sequence[Step],
    output: Output,
    profile: Profile,
    settings: Settings,
    record: RunRecord,
) -> None:
    log = record.folder / "output.log"
    with captured(log, cast(TextIO, output.console.file)) as terminal, Sampler(record.id) as sampler:
        record.watch(sampler.resources)
        context = Context(
            options=options,
            profile=profile,
            settings=settings,
            record=record,
            sampler=sampler,
            output=Output(as_json=output.as_json, file=terminal),
        )
        with _forking(context, [name for name, _function in steps]) as fork, stopped.told(context):
            context.fork = fork
            for name, function in steps:
                _step(context, name, function)
        if options.contract:
            contract.settle()
            found = contract.summary(profile, options.contract, collect(record.folder))
            context.output.line(contract.line(found), style="green")


@contextmanager
def _forking(context: Context, names: Sequence[str]) -> Iterator[Fork | None]:
    """The fork server: a watch's, or our own, started early: it imports while the first rungs climb."""
    if within := from_watch():
        yield Joined(within)
        return
    if not context.options.fork or not any(name.startswith(_TRAINERS) for name in names):
        yield None
        return
    device = context.settings.device
    variables = environment.variables(context.profile, context.settings, context.record.environment())
    environ = environment.child(variables, device)
    started = start(device, environ, context.folder / "output.log", context.folder)
    if isinstance(started, str):
        context.output.line(f"started normally, not forked: {started}")
        yield None
        return
    with started:
        yield started


def _say_where(options: ClimbOptions, profile: Profile, output: Output, record: RunRecord) -> None:
    """Record the settings, and plainly what a run elsewhere than on the profile's hardware leaves open."""
    place = options.place
    record.update(
        settings=_settings(options) | vars(place),
        device=place.device,
        rehearsal=place.rehearsal,
        unverified=list(unverified(profile, place, options.rollout)),
    )
    told = title(profile, place)
    if told:
        output.line(told, style="bold")
    for text in record.run.unverified:
        output.line(f"  not verified: {text}")


def _settings(options: ClimbOptions) -> dict[str, Any]:
    return {
        key: sorted(value)
        if isinstance(value, frozenset)
        else list(value)
        if isinstance(value, tuple)
        else value
        for key, value in vars(options).items()
        if value is None or isinstance(value, str | int | float | bool | tuple | frozenset)
    } | {"verl_source": str(options.verl_source) if options.verl_source else None}


def _step(context: Context, name: str, function: Callable[[Context], Verified]) -> None:
    record, output = context.record, context.output
    record.rung_started(name)
    events.emit("rung_started", rung=name)
    began, before = time.monotonic(), len(events.read(record.folder / "events.jsonl"))
    try:
        with output.busy(f"{name} ..."), _watched(context, name):
            context.check_installation()
            verified = function(context)
        _keep_to_contract(record, before)
    except Exception as error:  # torch, verl and the user's code raise anything
        told = contract.broken(events.read(record.folder / "events.jsonl")[before:]) or error
        if not isinstance(told, VerlockError):
            told = _unexpected(record, error)
        elif told is error:
            cause.named(record, told)
        _failed(context, name, told)
        if told is error:
            raise
        raise told from error
    seconds = time.monotonic() - began
    record.rung_passed(name, verified.line, round(seconds, 3), verified.details)
    events.emit("rung_passed", rung=name, seconds=round(seconds, 3))
    output.line(f"  passed  {name:9} {seconds:6.1f} s  {verified.line}", style="green")


def _watched(context: Context, name: str) -> AbstractContextManager[None]:
    """A rung of this process has a deadline here; a trainer's is watched where its output is read."""
    if name.startswith(_TRAINERS):
        return nullcontext()

    def last(error: HangError) -> None:
        _failed(context, name, error)
        _end(context.record, "failed", error)
        context.output.error(error)
        sweep(context.record.id)

    return watch.watched(name, context.options.seconds(), context.folder, last)


def _keep_to_contract(record: RunRecord, before: int) -> None:
    """A violation fails the rung even where its error was swallowed on the way."""
    error = contract.broken(events.read(record.folder / "events.jsonl")[before:])
    if error is not None:
        raise error


def _failed(context: Context, name: str, error: VerlockError) -> None:
    if isinstance(error, InterruptedRunError):
        return
    context.record.rung_failed(name, Failure.of(error))
    events.emit("rung_failed", rung=name, error=type(error).__name__)
    context.output.line(f"  failed  {name}", style="red")


def _unexpected(record: RunRecord, error: Exception) -> RungFailedError:
    """A rung's own exception: its stack goes to the log, its place in verl and its meaning to the user."""
    told = cause.of_exception(record, error)
    return cause.explained(
        RungFailedError(
            told.raised.text,
            where=f"{told.file}:{told.line}" if told.file else None,
            why=told.cause if told.known else "an exception in this process; the whole stack is in the log",
            todo=told.fix or f"read {record.folder / 'output.log'}",
        ),
        told,
    )


def _end(record: RunRecord, status: Status, error: VerlockError | None) -> None:
    """Complete the record: precision, and the end."""
    code = 0 if error is None else error.exit_code
    if error is not None and record.run.failure is None and status == "failed":
        record.update(failure=Failure.of(error))
    if isinstance(error, InterruptedRunError):
        record.update(ended_by=error.by)
    contract.settle()
    document = write_precision(record.folder)
    chosen = record.run.settings.get("contract")
    if chosen:
        record.update(contract=contract.summary(load(record.run.profile), str(chosen), document))
    shutil.rmtree(record.folder / stacks.FOLDER, ignore_errors=True)  # where processes would have told
    record.finish(status, code)


def this_command() -> list[str]:
    """The command line that a user types for what this process does, for the record."""
    return ["verlock", *sys.argv[1:]]
