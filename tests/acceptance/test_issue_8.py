"""Issue 8: each algorithm climbs, and a user's command is found good, made small, and passes the ppo rung."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.data import gsm8k
from harness.evidence.documents import Preflighted

pytestmark = pytest.mark.acceptance
ROOT = Path(__file__).parents[2]
ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
Record = Callable[[str, object], None]


def verlock(folder: Path, *words: str | Path) -> tuple[int, dict[str, Any]]:
    """Exit code and the one JSON document."""
    command = [sys.executable, "-P", "-m", "harness", *map(str, words)]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, json.loads(done.stdout)


@pytest.mark.parametrize("algorithm", ["ppo", "grpo", "rloo", "reinforce_plus_plus", "dapo"])
def test_each_algorithm_climbs_to_the_real_trainer(
    tmp_path: Path, algorithm: str, record_property: Record
) -> None:
    words = ["climb", "--json", "--runs", tmp_path / "runs", "--from", "ppo-mock", "--steps", "3"]
    code, document = verlock(tmp_path, *words, "--algorithm", algorithm)
    assert code == 0, document
    assert [rung["status"] for rung in document["rungs"]] == ["passed", "passed"]
    record_property("line", document["rungs"][-1]["verified"])


def test_a_users_command_passes_the_ppo_rung_with_their_rows_and_reward(
    tmp_path: Path, record_property: Record
) -> None:
    gsm8k.write(tmp_path / "train.parquet", gsm8k.make(64, seed=1))
    reward = "def score(data_source, solution_str, ground_truth, extra_info=None):\n"
    (tmp_path / "reward.py").write_text(reward + "    return len(set(solution_str)) / 100\n")
    given = [
        "data.train_files=train.parquet",
        "data.val_files=train.parquet",
        "data.train_batch_size=32",
        "algorithm.adv_estimator=grpo",
        "actor_rollout_ref.model.path=Qwen/Qwen3-8B",
        f"{ROLLOUT}.name=vllm",
        f"{ROLLOUT}.n=8",
        f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu=4",
        f"{ACTOR}.ppo_mini_batch_size=16",
        f"{ACTOR}.ppo_micro_batch_size_per_gpu=2",
        f"{ACTOR}.optim.lr=1e-4",
        "reward.custom_reward_function.path=reward.py",
        "reward.custom_reward_function.name=score",
        "trainer.logger=[console]",
    ]
    command = ["python3", "-m", "verl.trainer.main_ppo", *given]
    code, document = verlock(tmp_path, "preflight", "--json", "--runs", tmp_path / "runs", "--", *command)
    assert code == 0, document
    Preflighted.model_validate(document)
    assert document["findings"] == []
    line = document["run"]["rungs"][-1]["verified"]
    assert "gradients flow" in line, "the reward differs between responses"
    changed = {change["key"]: change["new"] for change in document["changes"]}
    assert changed["data.train_batch_size"] == 4
    assert f"{ACTOR}.optim.lr" not in changed
    assert any("vllm" in text for text in document["not_verified"])
    record_property("changes", len(changed))
    record_property("line", line)


def test_a_fault_of_the_users_model_logic_fails_the_run(tmp_path: Path) -> None:
    """A reward that raises for what an untrained model writes ends the small run, not the cluster's job."""
    gsm8k.write(tmp_path / "train.parquet", gsm8k.make(64, seed=1))
    reward = "def score(data_source, solution_str, ground_truth, extra_info=None):\n"
    (tmp_path / "reward.py").write_text(reward + "    return float(solution_str.split('####')[1])\n")
    given = [
        "data.train_files=train.parquet",
        "data.val_files=train.parquet",
        "data.train_batch_size=32",
        "algorithm.adv_estimator=grpo",
        "actor_rollout_ref.model.path=Qwen/Qwen3-8B",
        f"{ROLLOUT}.name=vllm",
        f"{ROLLOUT}.n=4",
        f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu=4",
        f"{ACTOR}.ppo_mini_batch_size=16",
        f"{ACTOR}.ppo_micro_batch_size_per_gpu=2",
        "reward.custom_reward_function.path=reward.py",
        "reward.custom_reward_function.name=score",
        "trainer.logger=[console]",
    ]
    command = ["python3", "-m", "verl.trainer.main_ppo", *given]
    words = ["preflight", "--json", "--from", "ppo", "--runs", tmp_path / "runs", "--", *command]
    code, document = verlock(tmp_path, *words)
    assert code == 22, document
    assert "IndexError" in json.dumps(document["error"])
