"""What a trainer run must show, as a pure function of its metrics and events.

verl ends with exit code 0 when nothing was learnt, when weights never reached the rollout, and when
everything was computed in bf16. These checks are what the rung means by "passed".
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from harness.errors import Problem
from harness.evidence.metrics import Step

PROBS_DIFF = "training/rollout_probs_diff_max"


@dataclass(frozen=True, kw_only=True)
class Expectation:
    """What this run must show.

    ``critic`` and ``kl_loss``: whether the configuration that ran has them. ``probs_tolerance`` is the
    highest difference of token probabilities between rollout and trainer; none where the rollout is a mock.
    ``old_log_probs``: whether the trainer computes them; with verl's bypass_mode it takes the rollout's, and
    then logs neither their difference nor an entropy. ``rewards_vary`` holds for the tiny task, whose reward
    is graded. ``any_reward``: a user's own reward may give the same to all responses of an untrained model;
    then such a step has no gradient, and is no fault.
    """

    steps: int
    critic: bool
    kl_loss: bool
    probs_tolerance: float | None
    rewards_vary: bool
    any_reward: bool = False
    old_log_probs: bool = True


def problems(steps: Sequence[Step], digests: Sequence[str], expected: Expectation) -> list[Problem]:
    """Everything that the run did not show. ``digests`` are those of the weights at the rollout server."""
    found = []
    if [step.step for step in steps] != list(range(1, expected.steps + 1)):
        found.append(Problem(what=f"steps {[s.step for s in steps]} were logged, not 1 to {expected.steps}"))
    idle = idle_steps(steps) if expected.any_reward else frozenset()
    for step in steps:
        found += _gradients(step, expected, idle=step.step in idle)
        found += _agreement(step, expected)
        found += _rewards(step, expected)
    return found + list(_weights(digests, expected, idle))


def idle_steps(steps: Sequence[Step]) -> frozenset[int]:
    """The steps in which all responses had the same reward: there was nothing to learn from."""
    return frozenset(
        step.step for step in steps if _number(step, "critic/score/min") == _number(step, "critic/score/max")
    )


def _number(step: Step, key: str) -> float:
    value = step.values.get(key)
    return float(value) if isinstance(value, int | float) else math.nan


def _gradients(step: Step, expected: Expectation, *, idle: bool) -> Iterator[Problem]:
    for key in ("actor/grad_norm", *(["critic/grad_norm"] if expected.critic else [])):
        norm = _number(step, key)
        if not (math.isfinite(norm) and (norm > 0 or idle)):
            yield Problem(
                what=f"step {step.step}: {key} is {norm}",
                why="a gradient that is zero, not finite or not logged trains nothing",
                todo="look at advantages and rewards of the step in metrics.jsonl",
            )
    for key in (
        "actor/pg_loss",
        *(["actor/kl_loss"] if expected.kl_loss else []),
        *(["actor/entropy"] if expected.old_log_probs else []),
        *(["critic/vf_loss"] if expected.critic else []),
    ):
        if not math.isfinite(_number(step, key)):
            yield Problem(
                what=f"step {step.step}: {key} is {step.values.get(key)}", why="it must be a finite number"
            )


def _agreement(step: Step, expected: Expectation) -> Iterator[Problem]:
    if expected.probs_tolerance is None or not expected.old_log_probs:
        return
    difference = _number(step, PROBS_DIFF)
    if not difference < expected.probs_tolerance:
        yield Problem(
            what=f"step {step.step}: {PROBS_DIFF} is {difference:.3g}, "
            f"not below {expected.probs_tolerance:g}",
            why="rollout and trainer do not compute the same probabilities: bf16 or autocast in one of them "
            "(measured 1.2e-4 on the tiny model), or weights that did not reach the rollout",
            todo="look for dtype and mixed_precision in config.yaml, and for 'weights' in events.jsonl",
        )


def _rewards(step: Step, expected: Expectation) -> Iterator[Problem]:
    low, high = _number(step, "critic/score/min"), _number(step, "critic/score/max")
    if expected.rewards_vary and not low < high:
        yield Problem(
            what=f"step {step.step}: all rewards are {high}",
            why="without differences in reward there is nothing to learn from",
            todo="check the reward function with the reward rung",
        )


def _weights(digests: Sequence[str], expected: Expectation, idle: frozenset[int]) -> Iterator[Problem]:
    """One update before the first step, then one after each step, each with other bits."""
    if len(digests) < expected.steps + 1:
        yield Problem(
            what=f"the rollout server took weights {len(digests)} times, not {expected.steps + 1}",
            why="it must take them before the first step and after each step",
        )
    changed = enumerate(pairwise(digests), 1)
    same = [step for step, (before, after) in changed if before == after and step not in idle]
    if same:
        yield Problem(
            what=f"the weights are the same after step {', '.join(map(str, same))} as before it",
            why="the optimiser's step had no effect, or was not sent to the rollout",
        )
