"""``--learn``: the real trainer must make the tiny model better at a tiny task, for several seeds.

A run can have finite losses and flowing gradients and still learn nothing, or the opposite of what was
meant. The reward is the share of a response's characters that are digits: 0.04 for a random model,
above 0.9 after 40 steps of GRPO.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import harness
from harness.errors import RungFailedError
from harness.evidence.metrics import column
from harness.ladder.climb import Step
from harness.ladder.context import Context, Verified
from harness.ladder.inputs import Inputs, prepare
from harness.ladder.options import ClimbOptions
from harness.ladder.overrides import for_rung
from harness.ladder.trainer import train

SEEDS = 3
STEPS = 40
WINDOW = 5
LEAST_GAIN = 0.3
_REWARDS = Path(harness.__file__).parent / "data" / "rewards.py"


def options_for(options: ClimbOptions) -> ClimbOptions:
    """GRPO on the tiny model; a reward that the user named is kept."""
    reward = options.reward if ":" in options.reward else f"{_REWARDS}:digits"
    return replace(options, algorithm="grpo", reward=reward, steps=STEPS)


def steps(options: ClimbOptions) -> list[Step]:
    """One step a seed."""
    return [(f"learn-{seed}", _with_seed(seed)) for seed in range(options.seed, options.seed + SEEDS)]


def _with_seed(seed: int) -> Callable[[Context], Verified]:
    return lambda context: _learn(context, replace(context.options, seed=seed))


def _inputs(options: ClimbOptions, folder: Path) -> Inputs:
    return replace(prepare(options, folder), batch=8, group=8)


def settings(options: ClimbOptions, inputs: Inputs) -> dict[str, object]:
    """The learning task's own settings, measured to reach 0.9 in 40 steps."""
    return for_rung(options, inputs, rollout="hf", steps=options.steps) | {
        "actor_rollout_ref.actor.optim.lr": 3e-3,
        "actor_rollout_ref.actor.use_kl_loss": False,
        "actor_rollout_ref.actor.ppo_mini_batch_size": inputs.batch,
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": inputs.batch * inputs.group,
    }


def _learn(context: Context, options: ClimbOptions) -> Verified:
    folder = (
        context.folder if options.seed == context.options.seed else context.folder / f"seed-{options.seed}"
    )
    inputs = _inputs(options, folder / "inputs")
    seeded = replace(context, options=options)
    trained = train(
        seeded, settings(options, inputs), name=f"learn-{options.seed}", steps=options.steps, folder=folder
    )
    rewards = [value for _, value in column(trained.steps, "critic/score/mean")]
    first, last = fmean(rewards[:WINDOW]), fmean(rewards[-WINDOW:])
    if len(rewards) != options.steps or not last - first >= LEAST_GAIN:
        raise RungFailedError(
            f"seed {options.seed}: mean reward went from {first:.3f} to {last:.3f} in {len(rewards)} steps, "
            f"a gain of {last - first:+.3f}, not {LEAST_GAIN}",
            where=str(folder / "metrics.jsonl"),
            why="reward function, sign of the advantages, learning rate or loss do not teach what the "
            "reward asks for",
            todo="compare critic/advantages, actor/grad_norm and actor/lr with those of a run that learns",
        )
    return Verified(
        line=f"seed {options.seed}: mean reward {first:.3f} in the first {WINDOW} steps, "
        f"{last:.3f} in the last",
        details={"seed": options.seed, "rewards": rewards, "gain": last - first, "seconds": trained.seconds},
    )
