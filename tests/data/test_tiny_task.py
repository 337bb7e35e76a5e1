"""The tiny task and the reward functions, as verl's own loader and reward manager see them."""

from __future__ import annotations

import runpy
import statistics
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.data import gsm8k, parquet_check, rewards, tiny_task

REWARDS = [rewards.digits, rewards.arithmetic, rewards.mock]


def test_the_files_pass_our_own_check(tmp_path: Path) -> None:
    train, val = tiny_task.write(tmp_path, rows=40, seed=3)
    assert (parquet_check.check(train).rows, parquet_check.check(val).rows) == (40, 10)
    assert parquet_check.check(train).data_sources == {tiny_task.DATA_SOURCE: 40}


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    first = [path.read_bytes() for path in tiny_task.write(tmp_path / "a", rows=8, seed=3)]
    assert first == [path.read_bytes() for path in tiny_task.write(tmp_path / "b", rows=8, seed=3)]
    assert first != [path.read_bytes() for path in tiny_task.write(tmp_path / "c", rows=8, seed=4)]
    assert first[0] != first[1]


def test_answers_are_right() -> None:
    for row in tiny_task.make(200, seed=1, split="train"):
        left, sign, right, _ = row["prompt"][0]["content"].split()
        value = int(left) + int(right) if sign == "+" else int(left) - int(right)
        assert row["reward_model"]["ground_truth"] == str(value)
        assert value >= 0


def test_a_task_without_rows(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least one row"):
        tiny_task.write(tmp_path, rows=0, seed=1)


def test_gsm8k_layout_and_verls_own_reward(tmp_path: Path) -> None:
    questions = list(gsm8k.make(20, seed=5))
    path = gsm8k.write(tmp_path / "train.parquet", questions)
    found = parquet_check.check(path)
    assert found.rows == 20
    assert found.first[0]["content"].endswith(gsm8k.INSTRUCTION)
    score = pytest.importorskip(
        "verl.utils.reward_score", reason="verl comes with the lock"
    ).default_compute_score
    for question in questions:
        assert score(gsm8k.DATA_SOURCE, question.solution, question.answer) == 1.0
        assert score(gsm8k.DATA_SOURCE, "#### -1", question.answer) == 0.0


@pytest.mark.parametrize(
    ("text", "score"),
    [("", 0.0), ("12", 1.0), ("a1", 0.5), ("no", 0.0), ("\u0661\u0662", 0.0), ("1 2 ", 0.5)],
)
def test_digits(text: str, score: float) -> None:
    assert rewards.digits("verlock/arithmetic", text, "5") == score


@pytest.mark.parametrize("text", ["12", " 12", "the answer is 12", "7 no, 12.", "#### 12"])
def test_arithmetic_right(text: str) -> None:
    assert rewards.arithmetic("verlock/arithmetic", text, "12") == 1.0


def test_arithmetic_is_graded() -> None:
    graded = ["", "@@@@", "99", "1x", "13", "12"]
    scores = [rewards.arithmetic("verlock/arithmetic", text, "12") for text in graded]
    assert scores == sorted(scores)
    assert len(set(scores)) == len(scores)
    assert scores[-2] < 0.9


@pytest.mark.parametrize("reward", REWARDS)
@given(st.text(), st.integers(-99, 999).map(str))
def test_scores_are_between_0_and_1_and_depend_on_the_text_alone(
    reward: object, text: str, truth: str
) -> None:
    assert callable(reward)
    score = reward("verlock/arithmetic", text, truth)
    assert isinstance(score, float)
    assert 0.0 <= score <= 1.0
    assert score == reward(
        data_source="x", solution_str=text, ground_truth=truth, extra_info={"index": 1}, more=2
    )


def test_rewards_differ_at_once_for_a_random_model() -> None:
    """Random bytes, as a random model gives them: a constant reward has no gradient."""
    import random

    draw = random.Random(1)
    for _ in range(50):
        texts = [bytes(draw.randrange(256) for _ in range(16)).decode(errors="replace") for _ in range(4)]
        for reward in (rewards.arithmetic, rewards.mock):
            assert statistics.pstdev(reward("x", text, "42") for text in texts) > 0


def test_verl_can_load_the_file_by_its_path() -> None:
    """Alone, without the package around it."""
    loaded = runpy.run_path(str(rewards.__file__))
    assert loaded["digits"]("x", "1a", "1") == 0.5
    source = Path(str(rewards.__file__)).read_text()
    assert "import harness" not in source
    assert "from harness" not in source
