"""Issue 4, memory plan: Qwen2.5-0.5B under the P40 profile, and three models against verl's own workers."""

from __future__ import annotations

import importlib.util
import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.errors import MemoryPlanError

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.acceptance
QWEN2 = {
    "model_type": "qwen2",
    "vocab_size": 8192,
    "hidden_size": 256,
    "intermediate_size": 1024,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "tie_word_embeddings": True,
}
LLAMA = {**QWEN2, "model_type": "llama", "num_key_value_heads": 8, "tie_word_embeddings": False}
QWEN3 = {**QWEN2, "model_type": "qwen3", "vocab_size": 4096, "head_dim": 32, "num_hidden_layers": 6}
MODELS = {"qwen2": QWEN2, "llama": LLAMA, "qwen3": QWEN3}
ACTOR = "actor_rollout_ref.actor"
BASE = [f"{ACTOR}.ppo_mini_batch_size=4", "actor_rollout_ref.model.enable_gradient_checkpointing=true"]


def sizes(micro: int) -> list[str]:
    keys = (
        f"{ACTOR}.ppo_micro_batch_size_per_gpu",
        "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu",
        "critic.ppo_micro_batch_size_per_gpu",
    )
    return [*BASE, *(f"{key}={micro}" for key in keys)]


VARIANTS: dict[str, list[str]] = {
    "one micro batch": sizes(4),
    "two micro batches": sizes(2),
    "without checkpointing": [
        *sizes(4),
        "actor_rollout_ref.model.enable_gradient_checkpointing=false",
        "critic.model.enable_gradient_checkpointing=false",
    ],
    "computed in bf16": [
        *sizes(4),
        f"+{ACTOR}.fsdp_config.mixed_precision.param_dtype=bf16",
        "+critic.fsdp.mixed_precision.param_dtype=bf16",
    ],
}


def comparison() -> Any:
    """The functions that the cheap test of tier A uses too."""
    path = ROOT / "tests" / "ladder" / "memory" / "conftest.py"
    spec = importlib.util.spec_from_file_location("memory_comparison", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("role", ["actor", "critic"])
@pytest.mark.parametrize("model", MODELS)
def test_the_plan_is_within_five_percent_of_a_real_run(
    model: str, role: str, variant: str, tmp_path: Path
) -> None:
    case = {
        "config": MODELS[model],
        "role": role,
        "rows": 4,
        "prompt": 128,
        "response": 64,
        "overrides": VARIANTS[variant],
    }
    compare = comparison()
    plan, real = compare.planned(case), compare.measured(case, tmp_path)
    off = {phase: real[phase] / expected - 1 for phase, expected in plan.items()}
    print(json.dumps({"model": model, "role": role, "variant": variant, "planned": plan, "measured": real}))
    assert {phase: part for phase, part in off.items() if abs(part) > 0.05} == {}


def verlock(*arguments: str) -> tuple[int, dict[str, Any], float]:
    """Exit code, document, and seconds of CPU that it took: the machine may be busy with other things."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-m", "harness", "plan", "memory", *arguments, "--json"],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert done.stdout, done.stderr[-3000:]
    return done.returncode, json.loads(done.stdout), used


def test_qwen_with_the_p40_profile_with_and_without_offload() -> None:
    code, plan, seconds = verlock("p40", "--model", "Qwen2.5-0.5B")
    print(json.dumps({"cpu_seconds": round(seconds, 1), **plan}))
    assert (code, plan["fits"], plan["parameters"]) == (0, True, 494032768)
    assert seconds < 30
    assert set(plan["roles"]) == {"actor", "critic", "reference", "rollout"}
    weights = 4 * plan["parameters"]
    on, off = plan["offload"]["on"], plan["offload"]["off"]
    # What lies idle beside a role at work: weights and two moments of the other one.
    assert off["actor"]["device"] - on["actor"]["device"] == pytest.approx(3 * weights, rel=0.1)
    assert off["critic"]["device"] - on["critic"]["device"] == pytest.approx(3 * weights, rel=0.1)
    assert on["actor"]["host"] > off["actor"]["host"]


def test_what_does_not_fit_says_what_to_change_and_is_right() -> None:
    code, plan, _ = verlock("p40", "--model", "Qwen2.5-1.5B")
    print(json.dumps({"change": plan["change"], "phases": plan["phases"]}))
    assert (code, plan["fits"]) == (MemoryPlanError.exit_code, False)
    code, small, _ = verlock("p40", "--model", "Qwen2.5-0.5B", "data.max_response_length=8192")
    print(json.dumps({"change": small["change"], "phases": small["phases"]}))
    assert (code, small["fits"]) == (MemoryPlanError.exit_code, False)
    assert small["change"]
    words = ["data.max_response_length=8192"]
    keys = {word.partition("=")[0] for word in small["change"]}
    kept = [word for word in words if word.partition("=")[0] not in keys]
    code, after, _ = verlock("p40", "--model", "Qwen2.5-0.5B", *kept, *small["change"])
    assert (code, after["fits"]) == (0, True)


def test_eight_ranks_share_weights_and_state() -> None:
    one, eight = (
        verlock("a100", "--model", "Qwen2.5-0.5B", f"trainer.n_gpus_per_node={ranks}")[1] for ranks in (1, 8)
    )
    assert one["roles"]["actor"]["shard"] == pytest.approx(8 * eight["roles"]["actor"]["shard"], rel=1e-3)
