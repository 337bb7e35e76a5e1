"""``ppo``: the real trainer with a real rollout, and proof that it trained."""

from __future__ import annotations

from pathlib import Path

from harness.errors import RungFailedError
from harness.evidence.metrics import column
from harness.ladder.checks import PROBS_DIFF, Expectation, idle_steps, problems
from harness.ladder.context import Context, Verified
from harness.ladder.overrides import for_rung
from harness.ladder.tolerance import probs_tolerance
from harness.ladder.trained import Trained
from harness.ladder.trainer import computes_old_log_probs, roles, train


def climb(context: Context) -> Verified:
    """Train some steps and check every one of them."""
    return run(context, name="ppo", rollout=context.options.rollout, folder=context.folder)


def run(context: Context, *, name: str, rollout: str, folder: Path) -> Verified:
    """One trainer run with the given rollout and its checks."""
    options, inputs = context.options, context.inputs
    settings = for_rung(options, inputs, rollout=rollout, steps=options.steps)
    trained = train(context, settings, name=name, steps=options.steps, folder=folder)
    context.trained[name] = trained
    found = problems(
        trained.steps,
        trained.digests(),
        Expectation(
            steps=options.steps,
            critic="critic" in roles(trained.config),
            kl_loss=bool(trained.config.actor_rollout_ref.actor.use_kl_loss),
            probs_tolerance=None if rollout == "mock" else probs_tolerance(is_tiny=inputs.is_tiny),
            rewards_vary=inputs.is_tiny,
            any_reward=options.any_reward and options.reward != "mock",
            old_log_probs=computes_old_log_probs(trained.config),
        ),
    )
    if found:
        raise RungFailedError(*found)
    return Verified(line=_line(context, trained, rollout), details=_details(trained))


def _line(context: Context, trained: Trained, rollout: str) -> str:
    options = context.options
    *first, last = roles(trained.config)
    names = f"{', '.join(first)} and {last}" if first else last
    trainer = "v1" if options.use_v1 else "v0"
    line = f"verl.trainer.main_ppo ({trainer}): {len(trained.steps)} steps of {names} over Ray"
    if rollout == "mock":
        return f"{line}; rollout and reward are MOCKED: interfaces only"
    if computes_old_log_probs(trained.config):
        worst = max(value for _, value in column(trained.steps, PROBS_DIFF))
        agree = f"probabilities agree to {worst:.1e} at every step"
    else:
        agree = "probabilities are NOT compared: bypass_mode takes the rollout's"
    if options.any_reward and len(idle_steps(trained.steps)) == len(trained.steps):
        return f"{line}; {agree}; all rewards were equal: nothing is said about gradients with this reward"
    return f"{line}; gradients flow, weights reach the rollout, {agree}"


def _details(trained: Trained) -> dict[str, object]:
    times = [value for _, value in column(trained.steps, "timing_s/step")]
    return {
        "command": trained.command,
        "timeline": trained.timeline(),
        "seconds": round(trained.seconds, 3),
        "seconds_per_step": [round(value, 3) for value in times],
        "probs_diff_max": [value for _, value in column(trained.steps, PROBS_DIFF)],
        "reward_mean": [value for _, value in column(trained.steps, "critic/score/mean")],
        "weight_digests": trained.digests(),
    }
