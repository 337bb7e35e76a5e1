"""Issue 4, claims that take a while: the recipe for a CPU, memory on a Mac, what the trainer imports."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.errors import MemoryPlanError

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.acceptance


def verlock(*words: str) -> tuple[int, dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "harness", *words, "--json"],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.stdout, done.stderr[-3000:]
    return done.returncode, json.loads(done.stdout)


def test_hiding_the_gpus_does_not_make_verl_run_on_a_cpu(tmp_path: Path) -> None:
    """As the guide says it, with the tiny model and data, and none of the harness's plug-in."""
    from harness.data import tiny_model, tiny_task

    model = tiny_model.write(tmp_path / "model", 1)
    train, val = tiny_task.write(tmp_path / "data", rows=64, seed=1)
    words = [
        f"data.train_files={train}",
        f"data.val_files={val}",
        "data.train_batch_size=8",
        f"actor_rollout_ref.model.path={model}",
        f"critic.model.path={model}",
        "actor_rollout_ref.actor.ppo_mini_batch_size=8",
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=8",
        "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=8",
        "critic.ppo_micro_batch_size_per_gpu=8",
        "actor_rollout_ref.rollout.name=vllm",
        "trainer.n_gpus_per_node=1",
        "trainer.logger=console",
        "trainer.use_v1=False",
    ]
    environ = {k: v for k, v in os.environ.items() if not k.startswith("VERL")}
    environ |= {"CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1", "HYDRA_FULL_ERROR": "1"}
    done = subprocess.run(
        [sys.executable, "-P", "-m", "verl.trainer.main_ppo", *words],
        env=environ,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode != 0
    told = done.stdout + done.stderr
    assert "Total available GPUs 0 is less than total desired GPUs 1" in told, told[-4000:]


def test_sixteen_gigabytes_hold_a_small_model_and_not_half_a_billion() -> None:
    small = [
        "data.max_prompt_length=64",
        "data.max_response_length=64",
        "actor_rollout_ref.rollout.max_num_seqs=8",
    ]
    code, plan = verlock("plan", "memory", "mac", "--model", "SmolLM2-135M", *small)
    assert (code, plan["fits"]) == (0, True)
    code, plan = verlock("plan", "memory", "mac", "--model", "Qwen2.5-0.5B", *small)
    assert (code, plan["fits"]) == (MemoryPlanError.exit_code, False)


def test_what_the_trainer_imports_and_who_asked_for_the_rest() -> None:
    code, found = verlock("deps", "--profile", "cpu")
    assert code == 0
    rungs = found["rungs"]
    print(json.dumps({"rungs": rungs, "needed": found["needed"], "idle": found["idle"]}))
    used = {name for names in rungs.values() for name in names}
    assert {"torch", "ray", "verl", "transformers", "tensordict", "hydra-core", "transferqueue"} <= used
    idle = [one for one in found["packages"] if one["rung"] is None]
    assert idle
    assert [one["name"] for one in idle if not one["asked_by"]] == []
    assert found["needed"]["packages"] + found["idle"]["packages"] == len(found["packages"])
