"""``ppo-mock``: the real trainer with a mocked rollout and reward of the same interface."""

from __future__ import annotations

from dataclasses import replace

from harness.ladder import ppo_rung
from harness.ladder.context import Context, Verified

# Enough to show that a step ends and the next one begins with new weights.
STEPS = 2


def climb(context: Context) -> Verified:
    """Two steps: Ray, worker groups, agent loop, reward workers and weight transport, without a model."""
    mocked = replace(context, options=replace(context.options, reward="mock", steps=STEPS))
    return ppo_rung.run(mocked, name="ppo-mock", rollout="mock", folder=context.folder / "ppo-mock")
