"""``ppo-2ranks``: the trainer on two ranks of this machine, sharded by FSDP2, and the same from one rank.

What two ranks compute together must be what one computes alone. The batch is trained in one piece (one mini
batch), because two ranks divide a batch into mini batches otherwise than one does.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from harness.errors import RungFailedError
from harness.ladder import checkpoint, ranks
from harness.ladder.checks import Expectation, problems
from harness.ladder.context import Context, Verified
from harness.ladder.overrides import ACTOR, ROLLOUT, for_rung
from harness.ladder.tolerance import probs_tolerance
from harness.ladder.trained import Trained
from harness.ladder.trainer import computes_old_log_probs, roles, train

RANKS = 2
STEPS = 2


def climb(context: Context) -> Verified:
    """Two ranks, the shards that they saved, then one rank; the first step of both."""
    context = replace(context, options=replace(context.options, steps=STEPS))
    folder = context.folder / "ppo-2ranks"
    two = _run(context, RANKS, folder / "two")
    _check(context, two)
    names = tuple(role for role in roles(two.config) if role != "reference")
    saved = checkpoint.folder_of(folder / "two" / "saved", STEPS)
    checkpoint.check(saved, roles=names, ranks=RANKS, parts=("model",))
    held = {
        role: [ranks.held(path) for path in checkpoint.shards(saved, role, RANKS, ("model",))]
        for role in names
    }
    found = [problem for role in names for problem in ranks.unsharded(role, held[role])]
    one = _run(context, 1, folder / "one")
    found += ranks.disagreements(one.steps[0], two.steps[0], is_tiny=context.inputs.is_tiny)
    if found:
        raise RungFailedError(*found)
    shutil.rmtree(folder / "two" / "saved")
    worst = ranks.worst(one.steps[0], two.steps[0])
    shares = ", ".join(f"{role} {' + '.join(str(h.elements) for h in held[role])}" for role in names)
    return Verified(
        line=f"verl.trainer.main_ppo: {STEPS} steps on {RANKS} ranks, sharded ({shares} weights); losses and "
        f"gradients of one rank to {worst:.1e} in the first step",
        details={
            "held": {role: [vars(h) for h in held[role]] for role in names},
            "agreement": ranks.compared(one.steps[0], two.steps[0]),
            "seconds": {"two": two.seconds, "one": one.seconds},
        },
    )


def _run(context: Context, world: int, folder: Path) -> Trained:
    options, inputs = context.options, context.inputs
    rows = inputs.batch * inputs.group // RANKS
    settings = for_rung(options, inputs, rollout=options.rollout, steps=STEPS) | {
        "trainer.n_gpus_per_node": world,
        f"{ACTOR}.ppo_mini_batch_size": inputs.batch,
        # The same rows at once on one rank as on each of two: one more of them, not larger ones.
        f"{ACTOR}.ppo_micro_batch_size_per_gpu": rows,
        f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu": rows,
        "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu": rows,
        "trainer.default_local_dir": str(folder / "saved"),
    }
    if options.place.device == "cpu":
        settings |= {"+ray_kwargs.ray_init.num_gpus": world}
    if options.algorithm == "ppo":
        settings |= {"critic.ppo_mini_batch_size": inputs.batch, "critic.ppo_micro_batch_size_per_gpu": rows}
    if world > 1:
        settings |= {
            "trainer.save_freq": STEPS,
            f"{ACTOR}.checkpoint.save_contents": ["model"],
            "critic.checkpoint.save_contents": ["model"],
        }
    return train(context, settings, name="ppo-2ranks", steps=STEPS, folder=folder)


def _check(context: Context, two: Trained) -> None:
    """The same as for the ``ppo`` rung."""
    tolerance = probs_tolerance(is_tiny=context.inputs.is_tiny)
    found = problems(
        two.steps,
        two.digests(),
        Expectation(
            steps=STEPS,
            critic="critic" in roles(two.config),
            kl_loss=bool(two.config.actor_rollout_ref.actor.use_kl_loss),
            probs_tolerance=None if context.options.rollout == "mock" else tolerance,
            rewards_vary=context.inputs.is_tiny,
            old_log_probs=computes_old_log_probs(two.config),
        ),
    )
    if found:
        raise RungFailedError(*found)
