"""``checkpoint``: verl's own save and resume, with a SIGKILL in between, and the same bits afterwards."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from harness.errors import RungFailedError
from harness.evidence import metrics
from harness.ladder import checkpoint, resumed
from harness.ladder.context import Context, Verified
from harness.ladder.overrides import for_rung
from harness.ladder.trained import Trained
from harness.ladder.trainer import train

# verl's CheckpointConfig for actor (which the reference shares) and critic.
_CONTENTS = ("actor_rollout_ref.actor.checkpoint.save_contents", "critic.checkpoint.save_contents")


def climb(context: Context) -> Verified:
    """Train, save, kill, resume; compare with the run of the ``ppo`` rung, or with one of its own."""
    options = replace(context.options, steps=max(context.options.steps, 2))
    after = options.steps // 2
    context = replace(context, options=options)
    mocked = options.checkpoint == "mock"
    folder = context.folder / "checkpoint"
    settings = for_rung(options, context.inputs, rollout=options.rollout, steps=options.steps)
    settings |= {"trainer.default_local_dir": str(folder / "saved")}
    if mocked:
        settings |= {key: ["extra"] for key in _CONTENTS}
    whole = None if mocked else _uninterrupted(context, settings, folder / "whole")
    killed = _killed(context, settings, folder, after)
    saved, resume = _saved(folder / "saved", after)
    size = sum(path.stat().st_size for path in saved.rglob("*") if path.is_file())
    after_kill = train(
        context,
        settings | resume,
        name="checkpoint",
        steps=options.steps,
        folder=folder / "resumed",
    )
    _judge(whole, killed, after_kill, after)
    shutil.rmtree(folder / "saved")  # gigabytes with a real model
    return _verified(after_kill, after, size, mocked=mocked)


def _saved(folder: Path, after: int) -> tuple[Path, dict[str, object]]:
    """The checkpoint of step ``after``, and the settings that resume from it.

    On a busy machine the kill comes late, and the next step is saved too: verl would resume from that one.
    """
    wanted, newest = checkpoint.folder_of(folder, after), checkpoint.latest(folder)
    if newest is None or not wanted.is_dir():
        raise RungFailedError(
            f"the newest checkpoint is {newest.name if newest else 'none'}, not that of step {after}",
            where=str(folder),
            todo="look for 'Saving checkpoint' and for errors in output.log",
        )
    if newest == wanted:
        return wanted, {"trainer.resume_mode": "auto"}
    return wanted, {"trainer.resume_mode": "resume_path", "trainer.resume_from_path": str(wanted)}


def _uninterrupted(context: Context, settings: dict[str, object], folder: Path) -> Trained:
    ppo = context.trained.get("ppo")
    if ppo is not None and len(ppo.steps) == context.options.steps:
        return ppo
    return train(context, settings, name="checkpoint", steps=context.options.steps, folder=folder)


def _killed(context: Context, settings: dict[str, object], folder: Path, after: int) -> Trained:
    killed = train(
        context,
        settings | {"trainer.save_freq": after},
        name="checkpoint",
        steps=context.options.steps,
        folder=folder / "killed",
        kill_after=after,
    )
    if not any(event["kind"] == "trainer_killed" for event in killed.events):
        raise RungFailedError(
            f"the run ended before it could be killed after step {after}",
            where=str(folder / "killed"),
            todo="look for its steps in output.log",
        )
    return killed


def _judge(whole: Trained | None, killed: Trained, after_kill: Trained, after: int) -> None:
    if whole is None:
        found = [step.step for step in after_kill.steps]
        if not found or found[0] != after + 1:
            raise RungFailedError(f"the resumed run logged the steps {found}; the first must be {after + 1}")
        return
    first = metrics.difference(whole.steps[:after], killed.steps[:after])
    if first is not None:
        raise RungFailedError(
            f"step {first.step}: {first.key} is {first.b!r} in a run that saves, and {first.a!r} in one that "
            "does not",
            why="saving must not change what is computed",
            todo="look for what saving draws random numbers for, or changes",
        )
    problems = list(
        resumed.problems(whole.steps, after_kill.steps, whole.digests(), after_kill.digests(), after=after)
    )
    if problems:
        raise RungFailedError(*problems)


def _verified(after_kill: Trained, after: int, size: int, *, mocked: bool) -> Verified:
    steps = [step.step for step in after_kill.steps]
    details = {"saved_at": after, "bytes": size, "steps": steps, "weight_digests": after_kill.digests()}
    head = f"saved after step {after}, killed, resumed"
    if mocked:
        return Verified(
            line=f"{head} at step {after + 1}; weights and optimiser are MOCKED away: interfaces only",
            details=details,
        )
    last = f" to {steps[-1]}" if len(steps) > 1 else ""
    line = f"{head}: step {after + 1}{last} bit-identical to the uninterrupted run, metrics and weights"
    return Verified(line=f"{line}; {size / 2**20:.1f} MiB", details=details)
