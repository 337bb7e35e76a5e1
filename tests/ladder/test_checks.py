"""What a trainer run must show: each planted fault in its metrics gives its own problem, and health none."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from harness.evidence.metrics import Step
from harness.ladder.checks import PROBS_DIFF, Expectation, problems

EXPECTED = Expectation(steps=3, critic=True, kl_loss=True, probs_tolerance=1e-6, rewards_vary=True)
HEALTHY = {
    "actor/grad_norm": 0.4,
    "critic/grad_norm": 2.5,
    "actor/pg_loss": -0.02,
    "actor/kl_loss": 0.0,
    "actor/entropy": 5.5,
    "critic/vf_loss": 0.1,
    PROBS_DIFF: 3.7e-9,
    "critic/score/min": 0.02,
    "critic/score/max": 0.09,
}
DIGESTS = ("a", "b", "c", "d")


def run(steps: int = 3, step: int = 2, **changed: Any) -> list[Step]:
    """Three healthy steps, with values of one of them changed; ``None`` leaves the key out."""
    plain = {key.replace("__", "/"): value for key, value in changed.items()}
    values = [HEALTHY | (plain if number == step else {}) for number in range(1, steps + 1)]
    return [
        Step(step=number, values={key: value for key, value in one.items() if value is not None})
        for number, one in enumerate(values, 1)
    ]


def probs(value: float | None) -> list[Step]:
    return run(**{PROBS_DIFF.replace("/", "__"): value})


def test_a_healthy_run_has_no_problem() -> None:
    assert problems(run(), DIGESTS, EXPECTED) == []


PLANTED = [
    pytest.param(run(actor__grad_norm=0.0), DIGESTS, "step 2: actor/grad_norm is 0.0", id="no gradient"),
    pytest.param(run(critic__grad_norm=0.0), DIGESTS, "step 2: critic/grad_norm is 0.0", id="critic"),
    pytest.param(run(actor__grad_norm=math.inf), DIGESTS, "step 2: actor/grad_norm is inf", id="infinite"),
    pytest.param(run(actor__grad_norm=None), DIGESTS, "step 2: actor/grad_norm is nan", id="not logged"),
    pytest.param(run(actor__pg_loss=math.nan), DIGESTS, "step 2: actor/pg_loss", id="NaN loss"),
    pytest.param(run(actor__pg_loss=None), DIGESTS, "step 2: actor/pg_loss", id="null loss"),
    pytest.param(run(actor__kl_loss=None), DIGESTS, "step 2: actor/kl_loss", id="KL not logged"),
    pytest.param(run(actor__entropy=math.inf), DIGESTS, "step 2: actor/entropy", id="entropy"),
    pytest.param(run(critic__vf_loss=math.nan), DIGESTS, "step 2: critic/vf_loss", id="value loss"),
    pytest.param(probs(1.2e-4), DIGESTS, f"step 2: {PROBS_DIFF} is 0.00012", id="bf16"),
    pytest.param(probs(1e-6), DIGESTS, f"step 2: {PROBS_DIFF} is 1e-06", id="just at the limit"),
    pytest.param(probs(None), DIGESTS, f"step 2: {PROBS_DIFF} is nan", id="no log-probs from the rollout"),
    pytest.param(run(critic__score__max=0.02), DIGESTS, "step 2: all rewards are 0.02", id="constant"),
    pytest.param(run(critic__score__min=None), DIGESTS, "step 2: all rewards", id="no rewards"),
    pytest.param(run(2, step=9), DIGESTS, "steps [1, 2] were logged, not 1 to 3", id="a step short"),
    pytest.param([], DIGESTS, "steps [] were logged", id="no metrics"),
    pytest.param(run(), DIGESTS[:3], "took weights 3 times, not 4", id="an update short"),
    pytest.param(run(), (), "took weights 0 times", id="no update at all"),
    pytest.param(
        run(), ("a", "b", "b", "c"), "the same after step 2 as before", id="an update without effect"
    ),
]


@pytest.mark.parametrize(("steps", "digests", "said"), PLANTED)
def test_a_planted_fault_is_the_one_problem(steps: list[Step], digests: tuple[str, ...], said: str) -> None:
    """verl ends with exit code 0 in each of these."""
    (problem,) = problems(steps, digests, EXPECTED)
    assert said in problem.what


def test_each_step_is_checked_and_each_problem_told() -> None:
    for step in (1, 2, 3):
        bad = run(step=step, actor__grad_norm=0.0, critic__score__max=0.02)
        found = [problem.what for problem in problems(bad, ("a", "a", "b", "c"), EXPECTED)]
        assert len(found) == 3
        assert sum(f"step {step}:" in what for what in found) == 2


IDS = ["no critic", "no KL loss", "mock", "real data", "real model", "bypass mode"]
LENIENT: list[tuple[Callable[..., Expectation], list[Step]]] = [
    (lambda **k: Expectation(**{**k, "critic": False}), run(critic__grad_norm=None, critic__vf_loss=None)),
    (lambda **k: Expectation(**{**k, "kl_loss": False}), run(actor__kl_loss=None)),
    (lambda **k: Expectation(**{**k, "probs_tolerance": None}), probs(0.9)),
    (lambda **k: Expectation(**{**k, "rewards_vary": False}), run(critic__score__max=0.02)),
    (lambda **k: Expectation(**{**k, "probs_tolerance": 1e-3}), probs(1e-4)),
    (
        lambda **k: Expectation(**{**k, "old_log_probs": False}),
        run(actor__entropy=None, training__rollout_probs_diff_max=None),
    ),
]


@pytest.mark.parametrize(("expected", "steps"), LENIENT, ids=IDS)
def test_what_is_not_expected_is_not_asked_for(
    expected: Callable[..., Expectation], steps: list[Step]
) -> None:
    assert problems(steps, DIGESTS, expected(**vars(EXPECTED))) == []
    assert problems(steps, DIGESTS, EXPECTED) != []
