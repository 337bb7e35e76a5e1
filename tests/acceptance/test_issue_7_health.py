"""Issue 7, health: what is planted in a real run of verl's trainer is named; runs that learn are not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.data import tiny_model
from harness.evidence import metrics
from harness.evidence.model import Run, load

pytestmark = pytest.mark.acceptance

ROOT = Path(__file__).parents[2]
FAULTS = ROOT / "tests" / "faults"
SICK = f"{FAULTS / 'sick_rewards.py'}"
PPO = ["--from", "ppo", "--to", "ppo", "--trainer", "v0"]
# The learning task's own (harness/ladder/learn.py), with another reward.
LEARNING = [
    "actor_rollout_ref.actor.optim.lr=3e-3",
    "actor_rollout_ref.actor.use_kl_loss=False",
    "actor_rollout_ref.actor.ppo_mini_batch_size=8",
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=64",
    "actor_rollout_ref.rollout.n=8",
]
Record = Callable[[str, object], None]


def climb(runs: Path, *words: str | Path, plugin: str | None = None) -> tuple[int, str, Run]:
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(FAULTS)])}
    variables.pop("VERL_USE_EXTERNAL_MODULES", None)
    done = subprocess.run(
        [sys.executable, "-P", "-m", "harness", "climb", "--runs", str(runs), *map(str, words)],
        env=variables | ({"VERL_USE_EXTERNAL_MODULES": plugin} if plugin else {}),
        capture_output=True,
        text=True,
        check=False,
    )
    said = done.stdout + done.stderr
    assert "Traceback" not in said, said
    return done.returncode, said, load((runs / "latest").resolve())


def found(run: Run) -> dict[str, str]:
    return {finding.id: finding.what for finding in run.findings}


def test_runs_that_learn_raise_none(tmp_path: Path, record_property: Record) -> None:
    """Three seeds, 40 steps each, from a mean reward of 0.04 to above 0.9."""
    code, said, run = climb(tmp_path / "runs", "--learn")
    assert code == 0, said
    assert [rung.status for rung in run.rungs] == ["passed"] * 3
    record_property("gain", [rung.details["gain"] for rung in run.rungs])
    assert found(run) == {}
    assert "warning" not in said


def test_a_collapse_to_five_tokens_is_named(tmp_path: Path, record_property: Record) -> None:
    """Really learnt: the reward is best at five characters. Everything else about the run is well."""
    words = [*PPO, "--algorithm", "grpo", "--steps", "32", "--reward", f"{SICK}:five"]
    code, said, run = climb(tmp_path / "runs", *words, "--", *LEARNING)
    assert code == 0, said
    lengths = metrics.column(metrics.read(tmp_path / "runs/latest/metrics.jsonl"), "response_length/mean")
    record_property("lengths", [round(value, 1) for _, value in lengths])
    assert set(found(run)) == {"responses-collapse"}
    assert "warning responses-collapse" in said
    assert "responses-collapse" in (tmp_path / "runs/latest/report.html").read_text()


def model_that_ends_early(folder: Path) -> Path:
    """The tiny model, with an end token that is likely in one context of five."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    place = tiny_model.write(folder, 1)
    model, end = (
        AutoModelForCausalLM.from_pretrained(place),
        AutoTokenizer.from_pretrained(place).eos_token_id,
    )
    with torch.no_grad():
        spread = model(torch.arange(250).reshape(10, 25)).logits[..., end].std()
        model.lm_head.weight[end] *= 6 / spread
    model.save_pretrained(place)
    return place


def test_endless_responses_are_named(tmp_path: Path, record_property: Record) -> None:
    """Really learnt: the longer the better, by a model that ended its responses at first."""
    model = model_that_ends_early(tmp_path / "model")
    words = [*PPO, "--algorithm", "grpo", "--steps", "24", "--reward", f"{SICK}:long", "--model", model]
    shape = ["data.train_batch_size=8", "data.max_response_length=16"]
    code, said, run = climb(tmp_path / "runs", *words, "--", *LEARNING, *shape)
    assert code == 0, said
    shares = metrics.column(
        metrics.read(tmp_path / "runs/latest/metrics.jsonl"), "response_length/clip_ratio"
    )
    record_property("share at the limit", [round(value, 2) for _, value in shares])
    assert "responses-endless" in found(run), said
    assert "of 16 tokens" in found(run)["responses-endless"]


def test_a_constant_reward_is_named(tmp_path: Path) -> None:
    """verl itself trains on and ends with exit code 0; the rung also fails for it."""
    code, said, run = climb(tmp_path / "runs", *PPO, "--reward", f"{SICK}:constant")
    assert code == 20, said
    assert "python -m verl.trainer.main_ppo ended" not in said
    assert "reward-constant" in found(run)
    assert "0.5" in found(run)["reward-constant"]


def test_a_leaking_worker_is_named(tmp_path: Path, record_property: Record) -> None:
    """4 MiB a call, 8 calls a step, in the reward worker; the run itself passes."""
    code, said, run = climb(tmp_path / "runs", *PPO, "--steps", "12", "--reward", f"{SICK}:leaks")
    assert code == 0, said
    record_property("finding", found(run))
    assert set(found(run)) == {"memory-grows"}
    assert "RewardLoopWorker" in found(run)["memory-grows"]


def test_a_gradient_that_is_not_finite_is_named(tmp_path: Path) -> None:
    """verl prints a warning, skips the step, and would end with exit code 0."""
    code, said, run = climb(tmp_path / "runs", *PPO, plugin="nan_loss")
    assert code == 20, said
    assert run.failure is not None
    assert run.failure.failure_class == "model-logic"
    assert "gradient-not-finite" in found(run)
    document: dict[str, Any] = json.loads((tmp_path / "runs/latest/run.json").read_text())
    assert {finding["class"] for finding in document["findings"]} == {"model-logic"}
