"""Each rule finds what is planted for it, and nothing else; a run that learns raises none."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from harness.evidence.health.points import Point
from harness.evidence.health.rules import RULES, Terms, evaluate

MIB = 2**20
STEPS = 40
TERMS = Terms(rung="ppo", limit=1024)


def learning(steps: int = STEPS, seed: int = 1) -> list[Point]:
    """A run that learns: reward up, deviation first up and then down, entropy halved, KL to 0.3, no leak."""
    rng = random.Random(seed)

    def noisy(value: float, share: float = 0.05) -> float:
        return value * (1 + rng.uniform(-share, share))

    points = []
    for step in range(1, steps + 1):
        share = step / steps
        points.append(
            Point(
                step=step,
                length=noisy(300 - 80 * share),
                at_limit=noisy(0.1),
                reward=noisy(0.04 + 0.9 * share),
                reward_std=noisy(0.05 + 0.3 * share * (1 - share)),
                reference_kl=noisy(0.002 + 0.3 * share),
                update_kl=rng.uniform(-0.01, 0.02),
                entropy=noisy(5.5 - 3 * share),
                clipped=noisy(0.02),
                gradients={"actor/grad_norm": noisy(0.8), "critic/grad_norm": noisy(2.0)},
                memory={
                    # Pools fill in the first steps; then a page now and then.
                    "ray::WorkerDict (pid 7)": int(noisy(900 * MIB * (1 - 0.3 ** min(step, 5)), 0.002)),
                    "ray::TaskRunner (pid 5)": 300 * MIB + rng.randrange(0, 200_000) + step * 50_000,
                },
            )
        )
    return points


Change = Callable[[Point, float], dict[str, Any]]
"""A step and how far the run is, 0 to 1, to what is different there."""


def grows(each: int) -> Change:
    return lambda p, _: {"memory": {**p.memory, "ray::RewardLoopWorker (pid 9)": 200 * MIB + p.step * each}}


PLANTED: dict[str, tuple[Change, str, Terms]] = {
    "collapse to 5 tokens": (lambda p, s: {"length": 300 * (1 - s) + 5 * s}, "responses-collapse", TERMS),
    "endless": (lambda p, s: {"at_limit": min(1.2 * s, 1.0)}, "responses-endless", TERMS),
    "endless after one step": (
        lambda p, s: {"at_limit": 1.0 if p.step > 1 else 0.02},  # as measured on the tiny model
        "responses-endless",
        TERMS,
    ),
    "endless from the start": (lambda p, s: {"at_limit": 1.0}, "responses-endless", TERMS),
    "constant": (lambda p, s: {"reward": 0.5, "reward_std": 0.0}, "reward-constant", TERMS),
    "constant at last": (
        lambda p, s: {"reward": 0.0, "reward_std": 0.0} if s > 0.8 else {},
        "reward-constant",
        TERMS,
    ),
    "stuck": (lambda p, s: {"reward": 0.3, "reward_std": 0.2}, "reward-deviation-stuck", TERMS),
    "entropy": (lambda p, s: {"entropy": 5.5 * 0.01**s}, "entropy-collapse", TERMS),
    "KL": (lambda p, s: {"reference_kl": 0.002 * 5000**s}, "kl-runs-off", TERMS),
    "KL of one step": (lambda p, s: {"update_kl": -0.8}, "update-too-large", TERMS),
    "clipped": (lambda p, s: {"clipped": 0.6}, "clip-fraction-high", TERMS),
    "leak": (grows(20 * MIB), "memory-grows", TERMS),
    "slow leak": (grows(2 * MIB), "memory-grows", TERMS),
    "leak in a worker that has ended at the last reading": (
        lambda p, s: grows(20 * MIB)(p, s) if s < 1 else {},
        "memory-grows",
        TERMS,
    ),
    "null gradient": (
        lambda p, s: {"gradients": {**p.gradients, "actor/grad_norm": None}} if p.step == 9 else {},
        "gradient-not-finite",
        TERMS,
    ),
    "infinite gradient": (
        lambda p, s: {"gradients": {"critic/grad_norm": math.inf}} if p.step == 9 else {},
        "gradient-not-finite",
        TERMS,
    ),
    "skipped step": (lambda p, s: {"skipped": p.step == 9}, "gradient-not-finite", TERMS),
}


def planted(change: Change, points: list[Point]) -> list[Point]:
    return [replace(p, **change(p, p.step / len(points))) for p in points]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("steps", [1, 4, 6, 12, STEPS])
def test_a_run_that_learns_raises_none(seed: int, steps: int) -> None:
    assert evaluate(learning(steps, seed), TERMS) == []


@pytest.mark.parametrize("name", PLANTED)
def test_what_is_planted_is_found_and_nothing_else(name: str) -> None:
    change, rule, terms = PLANTED[name]
    (finding,) = evaluate(planted(change, learning()), terms)
    assert (finding.id, finding.rung) == (rule, "ppo")
    assert finding.failure_class == ("resource" if rule == "memory-grows" else "model-logic")
    assert 1 <= finding.step <= STEPS
    assert all((finding.what, finding.why, finding.todo))


def test_every_rule_is_planted_for() -> None:
    """A rule that nothing here raises would be one that cannot fail."""
    raising = {
        rule
        for change, _, terms in PLANTED.values()
        for rule in RULES
        if list(rule(planted(change, learning()), terms))
    }
    assert raising == set(RULES)


HARMLESS: Mapping[str, tuple[Change, Terms]] = {
    "a random model does not end its answers": (
        lambda p, s: {"at_limit": 1.0},
        Terms(limit=1024, untrained=True),
    ),
    "a short limit cuts good answers": (lambda p, s: {"at_limit": 1.0}, Terms(limit=32)),
    "all answers have become right": (
        lambda p, s: {"reward": 1.0, "reward_std": 0.0} if s > 0.8 else {},
        TERMS,
    ),
    "one odd step": (
        lambda p, s: (
            {
                "length": 3.0,
                "at_limit": 1.0,
                "entropy": 0.0,
                "reference_kl": 9.0,
                "clipped": 1.0,
                "reward_std": 0.0,
            }
            if p.step == STEPS
            else {}
        ),
        TERMS,
    ),
    "a cache that fills and stands still": (
        lambda p, s: {"memory": {"ray::RewardLoopWorker (pid 9)": min(p.step, 20) * 50 * MIB}},
        TERMS,
    ),
    "Ray's own record of tasks": (
        lambda p, s: {"memory": {"gcs_server (pid 9)": (30 + p.step) * 2 * MIB}},
        TERMS,
    ),
    "memory that comes and goes": (
        lambda p, s: {
            "memory": {"ray::RewardLoopWorker (pid 9)": (200 + p.step * 5 + p.step % 3 * 90) * MIB}
        },
        TERMS,
    ),
    "a process that came late": (
        lambda p, s: {"memory": {"ray::Late (pid 9)": p.step * 90 * MIB}} if p.step > STEPS - 3 else {},
        TERMS,
    ),
    "nothing was logged": (
        lambda p, s: dict.fromkeys(
            ("length", "at_limit", "reward", "reward_std", "reference_kl", "update_kl", "entropy", "clipped"),
            math.nan,
        ),
        TERMS,
    ),
}


@pytest.mark.parametrize("name", HARMLESS)
def test_what_is_harmless_raises_none(name: str) -> None:
    change, terms = HARMLESS[name]
    assert evaluate(planted(change, learning()), terms) == []


def test_no_steps_no_findings() -> None:
    assert evaluate([], TERMS) == []


def test_the_reason_has_the_numbers() -> None:
    (found,) = evaluate(planted(PLANTED["slow leak"][0], learning()), TERMS)
    assert "ray::RewardLoopWorker (pid 9)" in found.what
    assert found.why.startswith("2.0 MiB a step")
    (found,) = evaluate(planted(PLANTED["null gradient"][0], learning()), TERMS)
    assert found.what == "actor/grad_norm is not finite in step 9"
