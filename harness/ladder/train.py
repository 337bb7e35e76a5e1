"""A job's training: verl's own ``main_ppo`` with exactly the overrides that it is given, and a run record.

The job files of a hand-off start it. On a cluster (RAY_ADDRESS) every node is checked first and watched
while the job runs. A job that is submitted again goes on from its last checkpoint: verl's ``resume_mode``.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.console import Output
from harness.diagnose.diagnosis import Diagnosis
from harness.errors import (
    DataError,
    EnvironmentDiffersError,
    InterruptedRunError,
    NodeLostError,
    Problem,
    TrainerError,
    VerlockError,
)
from harness.evidence import events, metrics, output
from harness.evidence.health.rules import Terms
from harness.evidence.model import Failure, Run
from harness.evidence.processes import sweep
from harness.evidence.record import RunRecord
from harness.evidence.sampler import Sampler
from harness.fingerprint import guard
from harness.fingerprint.guard import Expected
from harness.fingerprint.identity import fingerprint
from harness.fingerprint.verify import verify
from harness.ladder import cause, compose, health, nodes
from harness.ladder.precision import write_precision
from harness.ladder.trainer import keep_logs
from harness.profiles.hydra import word
from harness.profiles.load import load

_RUNTIME = "+ray_kwargs.ray_init.runtime_env.env_vars."
_LOCAL = "ray_kwargs.ray_init."
_TRACKER = "latest_checkpointed_iteration.txt"
_BY_DIGEST = "start the image by the digest of the bundle"


@dataclass(frozen=True, kw_only=True)
class Job:
    """What was asked for."""

    profile: str
    nodes: int
    expect: str
    """The image's fingerprint, which each node must have."""
    runs: Path
    overrides: tuple[str, ...]

    @property
    def on_cluster(self) -> bool:
        """Whether Ray is there already."""
        return bool(os.environ.get("RAY_ADDRESS"))


def train(job: Job, out: Output, command: Sequence[str], complete: Callable[[Path], object]) -> Run:
    """Check the nodes, train, and return the finished record; ``complete`` gets its folder at the end.

    Raises what the check raises, :class:`OverrideError` for words that verl does not take,
    :class:`NodeLostError` and :class:`TrainerError`; the record is complete by then.
    """
    profile = load(job.profile)
    if job.nodes > 1 and not job.on_cluster:
        raise NodeLostError(
            f"the job is for {job.nodes} nodes, and there is no cluster",
            where="RAY_ADDRESS",
            todo="start it with the bundle's job file",
        )
    config = compose.compose_config(job.overrides)
    _readable(config)
    record = RunRecord.create(job.runs, profile=profile.name, command=command)
    try:
        record.update(settings={"nodes": job.nodes, "expect": job.expect, "overrides": list(job.overrides)})
        with nodes.connected() if job.on_cluster else nullcontext(), Sampler(record.id) as sampler:
            record.watch(sampler.resources)
            there = _check(job, record, out)
            _train(job, record, there, config, out)
    except VerlockError as error:
        interrupted = isinstance(error, InterruptedRunError)
        if record.run.failure is None and not interrupted:
            record.update(failure=Failure.of(error))
        if isinstance(error, InterruptedRunError):
            record.update(ended_by=error.by)
        record.finish("interrupted" if interrupted else "failed", error.exit_code)
        raise
    else:
        record.finish("passed", 0)
    finally:
        write_precision(record.folder)
        complete(record.folder)
    return record.run


def _readable(config: Any) -> None:
    """Refuse files of the job's volumes that this user cannot read: the libraries call them missing.

    safetensors writes files for their owner alone, and a job in an image is seldom their owner.
    """
    rows = [config.data.train_files, config.data.val_files]
    named = [path for value in rows for path in (value if hasattr(value, "append") else [value])]
    places = [Path(str(path)) for path in (*named, config.actor_rollout_ref.model.path) if path]
    files = [file for place in places for file in (place.rglob("*") if place.is_dir() else [place])]
    problems = [
        Problem(
            what=f"user {os.getuid()} cannot read it",
            where=str(file),
            todo=f"chmod a+r {file}, on the machine that has the volume",
        )
        for file in files
        if file.is_file() and not os.access(file, os.R_OK)
    ]
    if problems:
        raise DataError(*problems)


def _check(job: Job, record: RunRecord, out: Output) -> list[nodes.Node]:
    record.rung_started("env")
    asked = nodes.commands(job.profile, job.expect, job.runs)
    try:
        if job.on_cluster:
            there = nodes.wait(job.nodes, out.line)
            with out.busy(f"checking {', '.join(map(str, there))}"):
                nodes.check(there, asked)
            line = f"{len(there)} nodes have the fingerprint {job.expect}, and passed env: " + ", ".join(
                map(str, there)
            )
        else:
            there = []
            said = nodes.run_here(asked[:1])  # the job file climbed to env a moment ago
            if said is not None:
                raise EnvironmentDiffersError("this node is not what was proven", why=said, todo=_BY_DIGEST)
            line = f"this node has the fingerprint {job.expect}"
    except VerlockError as error:
        record.rung_failed("env", Failure.of(error))
        raise
    record.rung_passed("env", line)
    out.line(f"  passed  env    {line}", style="green")
    return there


def _train(job: Job, record: RunRecord, there: Sequence[nodes.Node], config: Any, out: Output) -> None:
    folder = record.folder.absolute()
    log, checkpoints = folder / "output.log", str(config.trainer.default_local_dir)
    before = _checkpoint(checkpoints)
    record.rung_started("train")
    if before:
        out.line(f"going on from the checkpoint of step {before}")
    ties = _ties(job.profile, record)
    with _words(job, folder, ties) as (words, ray):
        command = [sys.executable, "-m", "verl.trainer.main_ppo", *words]
        watch = nodes.Watch(there, lambda: sweep(record.id)) if there else None
        environ = os.environ | ties
        each = health.StepWatch(record.id, "train", on_gpu=True)

        def show(line: str) -> None:
            out.line(line)
            each.line(line)

        with watch or nullcontext(), each:
            finished = output.run(command, log=log, env=environ, cwd=folder, on_line=show)
            lost = watch.lost() if watch and finished.exit_code != 0 else []
        if ray is not None and finished.exit_code != 0:
            keep_logs(ray, folder / "ray-logs")
    health.tell(record, out, list(each.survived.values()))
    health.judge(
        record,
        out,
        folder,
        events.read(folder / "events.jsonl"),
        Terms(limit=config.data.max_response_length),
    )
    details = {"command": command, "resumed_from": before}
    if finished.exit_code != 0:
        # A cluster's workers leave theirs on their own nodes.
        told = cause.of_log(record, log, 0, sorted((folder / "ray-logs").glob("worker-*.err")))
        refused = None if lost else guard.reported(events.read(folder / "events.jsonl"))
        error = refused or _error(finished.exit_code, log, told, lost, _checkpoint(checkpoints))
        record.rung_failed("train", Failure.of(error), details=details)
        raise error
    steps = _steps(folder)
    active = sum(event["kind"] == "activated" for event in events.read(folder / "events.jsonl"))
    line = (
        f"verl.trainer.main_ppo: {f'steps {steps[0]} to {steps[-1]}' if steps else 'no step was left to do'}"
    )
    line += f", on from the checkpoint of step {before}" if before else ""
    line += f", on {len(there)} nodes" if there else ""
    record.rung_passed(
        "train", f"{line}; {active} processes with the plug-in", details=details | {"steps": steps}
    )
    out.line(f"  passed  train  {line}", style="green")


def _ties(name: str, record: RunRecord) -> dict[str, str]:
    """What ties each process, on whichever node, to this run's record and to this process's environment."""
    profile = load(name)
    found = fingerprint(profile, None, record.folder)
    checked = verify(profile, overlay=False)
    record.update(fingerprint={**found, "contents": checked.contents})
    expected = Expected(profile=profile.name, parts=found["parts"], contents=checked.contents)
    board = {"TENSORBOARD_DIR": str(record.folder.absolute() / "tensorboard")}
    return expected.variables() | record.environment() | board


@contextmanager
def _words(job: Job, folder: Path, ties: Mapping[str, str]) -> Iterator[tuple[list[str], Path | None]]:
    """The job's overrides, and the ties: Ray sets them in every worker; and Ray's folder where it is ours."""
    own: dict[str, object] = {"hydra.run.dir": str(folder), "hydra.output_subdir": None}
    own |= {f"{_RUNTIME}{name}": value for name, value in ties.items()}
    if job.on_cluster:
        yield [*job.overrides, *(word(key, value) for key, value in own.items())], None
        return
    local = {k: v for k, v in load(job.profile).overrides().items() if k.lstrip("+").startswith(_LOCAL)}
    # Ray's sockets lie below it, and a Unix socket's path has at most 107 bytes.
    ray = Path(tempfile.mkdtemp(prefix=f"vl-{os.getpid()}-"))
    own |= local | {f"+{_LOCAL}_temp_dir": str(ray)}
    try:
        yield [*job.overrides, *(word(key, value) for key, value in own.items())], ray
    finally:
        shutil.rmtree(ray, ignore_errors=True)


def _error(
    code: int, log: Path, told: Diagnosis, lost: Sequence[nodes.Node], checkpoint: int
) -> TrainerError:
    ended = f"verl.trainer.main_ppo ended with exit code {code}"
    again = "submit the job again: it goes on from " + (
        f"the checkpoint of step {checkpoint}"
        if checkpoint
        else "the beginning, since no checkpoint was written"
    )
    if lost:
        names = ", ".join(map(str, lost))
        return NodeLostError(
            f"{len(lost)} node(s) left the cluster while the job ran: {names}",
            where=str(log),
            why=f"the first error that followed: {told.raised.text or ended}",
            todo=f"find out why it left (killed, out of memory, network), then {again}",
        )
    todo = f"{told.fix or f'read {log}'}; then {again}"
    return cause.of_trainer(told, ended, log=log, todo=todo)


def _checkpoint(folder: str) -> int:
    """The step of the checkpoint that verl goes on from; 0 without one."""
    try:
        return int(Path(folder, _TRACKER).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return 0


def _steps(folder: Path) -> list[int]:
    """The steps that verl's file logger wrote; empty where the job has none (trainer.logger)."""
    path = folder / "metrics.jsonl"
    return [step.step for step in metrics.read(path)] if path.is_file() else []
