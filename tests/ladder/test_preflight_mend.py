"""Faults that one value corrects: what runs in spite of them, and that the findings stay the command's."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

if importlib.util.find_spec("verl") is None:
    pytest.skip("verl comes with the lock", allow_module_level=True)

from harness.data import gsm8k
from harness.data.finding import faults
from harness.ladder.options import ClimbOptions
from harness.ladder.preflight.command_line import TRAINER, parse
from harness.ladder.preflight.mend import mended
from harness.ladder.preflight.prepare import prepare
from harness.ladder.preflight.settings import Settings
from harness.ladder.preflight.static import Inspected, inspect

ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"


@pytest.fixture
def judge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Inspected:
    """A command with a fault of each kind that is mended, and with one that is not."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    gsm8k.write(tmp_path / "train.parquet", gsm8k.make(32, seed=1))
    words = [
        "data.train_files=train.parquet",
        "data.val_files=train.parquet",
        "data.train_batch_size=16",
        "algorithm.adv_estimator=gdpo",
        "+algorithm.gdpo_reward_keys=[accuracy]",
        f"+{ACTOR}.policy_loss.tau=0.1",
        f"+{ACTOR}.policy_loss.sigma=[0.1,0.2]",
        f"{ACTOR}.ppo_mini_batch_size=8",
        f"{ACTOR}.ppo_micro_batch_size_per_gpu=3",
        f"{ROLLOUT}.name=vllm",
        f"{ROLLOUT}.n=4",
        f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu=4",
        "data.custom_cls.path=gone/dataset.py",
        "data.custom_cls.name=Rows",
        "reward.custom_reward_function.path=gone/reward.py",
        "trainer.n_gpus_per_node=1",
        "+trainer.val_before_train=False",
    ]
    return inspect(parse(["python", "-m", TRAINER, *words], environ={}, folder=tmp_path))


def test_each_is_corrected_by_one_value_and_listed(judge: Inspected) -> None:
    found, changes = mended(judge)
    assert {(change.key, change.new) for change in changes} == {
        ("trainer.use_v1", False),
        (f"{ACTOR}.policy_loss.tau", None),
        (f"{ACTOR}.policy_loss.sigma", None),
        ("data.custom_cls.path", None),
        ("trainer.val_before_train", "False"),
    }
    assert all(change.why.startswith("a fault: ") for change in changes)
    s = Settings(found.config or {})
    assert s.get("trainer.use_v1") is False
    assert s.get("data.custom_cls.path") is None
    assert s.get("trainer.val_before_train") is False
    assert not any("tau" in word for word in found.words)
    # The user's other words, and a fault that is no matter of one value, are as they were.
    assert s.get(f"{ACTOR}.ppo_micro_batch_size_per_gpu") == 3
    assert found.findings == judge.findings
    assert faults(found.findings)


def test_the_corrected_command_has_those_faults_no_more(judge: Inspected) -> None:
    found, changes = mended(judge)
    left = {finding.key for finding in faults(inspect(found.asked).findings)}
    assert not left & {"algorithm.adv_estimator", *(change.key for change in changes)}


def test_a_reward_file_that_is_not_there_is_stood_in_for_and_named(judge: Inspected, tmp_path: Path) -> None:
    found, changes = mended(judge)
    ready = prepare(found, ClimbOptions(steps=2, runs=tmp_path / "runs"), stand_in=True, mends=changes)
    assert ready.options.reward == "mock"
    assert ready.options.use_v1 is False
    assert ready.changes[: len(changes)] == changes
    assert any("gone/reward.py" in text for text in ready.not_verified)


def test_a_command_without_such_faults_is_left_alone(judge: Inspected) -> None:
    once, _ = mended(judge)
    again, changes = mended(inspect(once.asked))
    assert changes == ()
    assert again.words == inspect(once.asked).words
