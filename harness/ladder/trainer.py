"""Runs verl's own, unedited ``python -m verl.trainer.main_ppo`` and reads what it left."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.diagnose.news import News
from harness.errors import EnvironmentDiffersError, HangError, PatchUnfitError, RungFailedError, VerlockError
from harness.evidence import events, metrics, output
from harness.evidence.abandoned import RAY_FOLDER
from harness.evidence.files import replace_text
from harness.evidence.health.rules import Terms
from harness.evidence.processes import kill
from harness.evidence.sections import ORIGINS
from harness.fingerprint import guard
from harness.ladder import cause, checkpoint, compose, environment, health, origins, watch
from harness.ladder.activation import unproven
from harness.ladder.context import Context
from harness.ladder.contract import prove_counted
from harness.ladder.options import TINY
from harness.ladder.precision import uncounted
from harness.ladder.trained import Trained
from harness.warm.standin import NORMALLY

# Starting takes most of a short run's time: signs in verl's and Ray's output that it goes on.
_MILESTONES = {
    "Started a local Ray instance": "Ray is up",
    "dataset len": "rows are read",
    "After FSDP": "models are being built",
}
# torch 2.13: the thread that feeds a DataLoader's queue prints its error and drops the batch; verl waits for
# that batch without an end (seen with 16 MiB of /dev/shm).
_LOST = {"unable to allocate shared memory(shm)": "waits for a batch that is lost"}


def roles(config: Any) -> list[str]:
    """Who trains or is asked, by verl's own rules: the user's overrides may have changed the algorithm."""
    from verl.trainer.ppo.utils import need_critic, need_reference_policy

    asked = {"critic": need_critic(config), "reference": need_reference_policy(config)}
    return ["actor", *(role for role, needed in asked.items() if needed)]


def computes_old_log_probs(config: Any) -> bool:
    """Whether the trainer computes them, rather than take the rollout's."""
    correction = config.algorithm.get("rollout_correction") or {}
    return not correction.get("bypass_mode", False)


def train(
    context: Context,
    rung: Mapping[str, object],
    *,
    name: str,
    steps: int,
    folder: Path,
    kill_after: int | None = None,
) -> Trained:
    """Run the trainer with ``rung``'s settings and wait for its end.

    With ``kill_after``, all of its processes get SIGKILL as soon as that step was logged.
    ``folder`` takes ``config.yaml``, ``metrics.jsonl`` and ``tensorboard/``. Raises :class:`OverrideError`
    or :class:`ModelError` (a damaged checkpoint) before anything is started, :class:`TrainerError`,
    :class:`PatchUnfitError` or :class:`EnvironmentDiffersError` when the run fails, and
    :class:`RungFailedError` when a process of it ran without the plug-in.
    """
    context.release()
    config = compose.compose_config(context.words(rung))
    if config.trainer.resume_mode != "disable":
        checkpoint.check_resume(config, tuple(role for role in roles(config) if role != "reference"))
    folder.mkdir(parents=True, exist_ok=True)
    replace_text(folder / "config.yaml", compose.text(config), what="write the composed configuration")
    on_cpu = context.options.place.device == "cpu"
    set_by = origins.layers(context.profile, rung, context.options.overrides, on_cpu=on_cpu)
    replace_text(folder / ORIGINS, origins.text(set_by), what="write who set what")
    began = len(events.read(context.folder / "events.jsonl"))
    said = _size(context.folder / "output.log")
    up = context.fork.cluster(config) if context.fork else None
    ray = Path(up.folder if up else tempfile.mkdtemp(prefix=f"{RAY_FOLDER}{os.getpid()}-"))
    try:
        own = {
            **rung,
            **health.settings(folder),
            **(up.words() if up else {"+ray_kwargs.ray_init._temp_dir": str(ray)}),
            "hydra.run.dir": str(folder),
            "hydra.output_subdir": None,
        }
        command = [sys.executable, "-m", "verl.trainer.main_ppo", *context.words(own)]
        try:
            with health.StepWatch(context.record.id, name, on_gpu=not on_cpu) as watched:
                finished = _run(
                    context,
                    command,
                    watched,
                    name=name,
                    steps=steps,
                    folder=folder,
                    kill_after=kill_after,
                    ray_is_up=bool(up),
                )
        except HangError as hang:
            raise _explained(context, hang, said) from None
        finally:
            _judge(context, config, name, folder, began)
        seen = events.read(context.folder / "events.jsonl")[began:]
        killed = any(event["kind"] == "trainer_killed" for event in seen)
        if not killed and (finished.exit_code != 0 or finished.timed_out):
            keep_logs(ray, folder / "ray-logs")
            raise _failure(context, finished, seen, said, sorted((folder / "ray-logs").glob("worker-*.err")))
    finally:
        if not up:  # else it is the watch's
            shutil.rmtree(ray, ignore_errors=True)
    _prove_activation(context)
    return Trained(
        steps=metrics.read(folder / "metrics.jsonl"),
        events=seen,
        seconds=finished.seconds,
        command=command,
        titles={process.pid: process.title for process in context.sampler.resources().processes},
        config=config,
    )


def _judge(context: Context, config: Any, name: str, folder: Path, began: int) -> None:
    """What a mock generates says nothing about a model's health."""
    if config.actor_rollout_ref.rollout.name == "mock":
        return
    terms = Terms(rung=name, limit=config.data.max_response_length, untrained=context.options.model == TINY)
    seen = events.read(context.folder / "events.jsonl")[began:]
    health.judge(context.record, context.output, folder, seen, terms)


def _run(
    context: Context,
    command: Sequence[str],
    watched: health.StepWatch,
    *,
    name: str,
    steps: int,
    folder: Path,
    kill_after: int | None,
    ray_is_up: bool,
) -> output.Finished:
    events.emit("trainer_started", rung=name, command=list(command))
    fork = context.fork
    spare = () if fork is None else (fork.pid,)
    told: set[str] = set()
    lost: list[str] = []

    def show(line: str) -> None:
        step = watched.line(line)
        if step is not None:
            context.output.line(f"  {name}: step {step} of {steps}")
            if kill_after is not None and step >= kill_after and "killed" not in told:
                told.add("killed")
                events.emit("trainer_killed", step=step, processes=kill(context.record.id, spare=spare))
        lost.extend(text for sign, text in _LOST.items() if sign in line)
        if line.startswith(NORMALLY):
            context.output.line(f"  {name}: {line.removeprefix('verlock: ')}")
        for sign, text in _MILESTONES.items():
            if sign in line and sign not in told:
                told.add(sign)
                context.output.line(f"  {name}: {text}")

    variables = environment.variables(context.profile, context.settings, context.record.environment())
    environ = environment.trainer(variables, folder, context.settings.device, fork, ray_is_up=ray_is_up)
    hung: list[HangError] = []

    def look(passed: str) -> None:
        context.output.line(f"  {name}: {passed}; taking the stacks of all its processes")
        hung.append(watch.trainer_hangs(context.record.id, context.folder, environ, f"{name} {passed}"))

    finished = output.run(
        fork.command(command) if fork else command,
        log=context.folder / "output.log",
        env=environ,
        cwd=folder,
        on_line=show,
        limits=output.Limits(
            timeout=context.options.seconds(steps=steps),
            silence=context.options.patience,
            news=News(),
            lost=lambda: lost[0] if lost else None,
            on_expiry=look,
        ),
        spare=spare,
        # A Ray of the watch keeps its idle workers, and is thrown away: nobody waits for them to leave.
        grace=0.0 if ray_is_up else output.GRACE,
    )
    health.tell(context.record, context.output, list(watched.survived.values()))
    events.emit("trainer_ended", rung=name, exit_code=finished.exit_code, left_over=len(finished.left_over))
    if hung:
        raise hung[0]
    return finished


def _explained(context: Context, hang: HangError, begin: int) -> VerlockError:
    """The hang, or the error in the log that explains it: verl waits for what is lost without an end."""
    log = context.folder / "output.log"
    told = cause.of_log(context.record, log, begin, ())
    if told.sure != "certain" or hang.signature != "hang" or hang.failure_class != "distributed":
        return hang
    told = told.model_copy(
        update={"cause": f"{told.cause}; verl waits for what is lost by it, without an end"}
    )
    return cause.of_trainer(told, hang.problems[0].what, log=log, todo=str(told.fix))


def keep_logs(ray: Path, target: Path) -> None:
    """Ray's own logs of a failed run: what a dead worker said last is only there."""
    logs = next(iter(ray.glob("session_2*/logs")), None)
    if logs is not None:
        shutil.copytree(
            logs, target, symlinks=True, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.sock")
        )


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _failure(
    context: Context,
    finished: output.Finished,
    seen: Sequence[Mapping[str, Any]],
    begin: int,
    workers: Sequence[Path],
) -> Exception:
    log = context.folder / "output.log"
    differs = _environment(seen)
    if differs is not None:
        return differs
    unfit = next((e for e in seen if e["kind"] == "patch" and e["outcome"] == "unfit"), None)
    if unfit is not None:
        return PatchUnfitError(
            f"patch {unfit['patch']} does not fit this verl",
            where=str(log),
            why=str(unfit.get("difference")),
            todo=f"use the locked verl, or leave it out: --without-patch {unfit['patch']}",
        )
    ended = f"python -m verl.trainer.main_ppo ended with exit code {finished.exit_code}"
    told = cause.of_log(context.record, log, begin, workers)
    todo = told.fix or f"read {log}; the workers' own logs are in the run folder under ray-logs"
    if context.options.without_patches:
        names = ", ".join(sorted(context.options.without_patches))
        todo = f"climb without --without-patch {names} first: it may be the cause; else {todo}"
    return cause.of_trainer(told, ended, log=log, todo=todo)


def _environment(seen: Sequence[Mapping[str, Any]]) -> EnvironmentDiffersError | None:
    """What a process found to differ; else what differs here now: a broken torch fails before any check."""
    reported = guard.reported(seen)
    if reported is not None:
        return reported
    try:
        guard.check()
    except EnvironmentDiffersError as error:
        return error
    return None


def _prove_activation(context: Context) -> None:
    everything = events.read(context.folder / "events.jsonl")
    if context.settings.terms is not None:
        prove_counted(uncounted(context.folder, everything))
    missing = unproven(context.sampler.resources().processes, everything)
    if missing:
        names = ", ".join(f"{p.title} (pid {p.pid})" for p in missing)
        raise RungFailedError(
            f"{len(missing)} processes ran verl without the plug-in: {names}",
            why="they left no line of activation in events.jsonl: their dtype and patches are unknown",
            todo="check that VERL_USE_EXTERNAL_MODULES reaches Ray's workers",
        )
    own = os.getpid()  # the climb's own line comes before its check
    unchecked = [
        e for e in everything if e["kind"] == "activated" and not e["environment"] and e["pid"] != own
    ]
    if unchecked:
        names = ", ".join(f"{e['role']} (pid {e['pid']})" for e in unchecked)
        raise RungFailedError(
            f"{len(unchecked)} processes ran verl without a check of their environment: {names}",
            why=f"{guard.VARIABLE} did not reach them",
            todo="check that the environment of the driver reaches Ray's workers",
        )
