"""Claims about keys: composed from verl's own tree."""

from __future__ import annotations

import pytest

from harness.errors import OverrideError
from harness.ladder.compose import compose_config

MODEL, ROLLOUT = "actor_rollout_ref.model", "actor_rollout_ref.rollout"


def test_the_dtype_flag_is_refused_and_the_right_keys_compose() -> None:
    for word in ("--dtype=float32", "dtype=float32"):
        with pytest.raises(OverrideError):
            compose_config([word])
    keys = [
        f"{ROLLOUT}.dtype=float32",
        "actor_rollout_ref.actor.fsdp_config.model_dtype=fp32",
        "+actor_rollout_ref.actor.fsdp_config.mixed_precision.param_dtype=fp32",
    ]
    config = compose_config(keys)
    assert config.actor_rollout_ref.actor.fsdp_config.mixed_precision.param_dtype == "fp32"


def test_the_rollout_has_no_attention_of_the_trainers() -> None:
    config = compose_config([f"+{MODEL}.override_config.attn_implementation=sdpa"])
    assert config.actor_rollout_ref.model.override_config.attn_implementation == "sdpa"
    with pytest.raises(OverrideError):
        compose_config([f"{ROLLOUT}.attn_implementation=sdpa"])


def test_the_offload_key_of_guides_is_read_by_nothing(sources: dict[str, str]) -> None:
    key = "actor_rollout_ref.fsdp_config.cpu_offload"
    with pytest.raises(OverrideError):
        compose_config([f"{key}=true"])
    forced = compose_config([f"++{key}=true"])
    assert forced.actor_rollout_ref.fsdp_config.cpu_offload is True
    assert forced.actor_rollout_ref.actor.fsdp_config.param_offload is False
    assert [name for name, text in sources.items() if "actor_rollout_ref.fsdp_config" in text] == []


def test_a_train_batch_of_one_is_refused_with_the_defaults() -> None:
    from verl.utils.config import omega_conf_to_dataclass

    words = [
        "data.train_batch_size=1",
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1",
        "actor_rollout_ref.actor.strategy=fsdp2",
        f"{ROLLOUT}.name=hf",
    ]
    config = compose_config(words)
    assert config.trainer.n_gpus_per_node == 8
    assert config.actor_rollout_ref.rollout.tensor_model_parallel_size == 2
    actor = omega_conf_to_dataclass(config.actor_rollout_ref.actor)
    with pytest.raises(
        ValueError, match=r"train_batch_size \(1\) must be >= actor.ppo_mini_batch_size \(256\)"
    ):
        actor.validate(n_gpus=1, train_batch_size=1)
    small = compose_config([*words, "actor_rollout_ref.actor.ppo_mini_batch_size=1"])
    omega_conf_to_dataclass(small.actor_rollout_ref.actor).validate(n_gpus=1, train_batch_size=1)


def test_the_storage_units_need_more_cpus_than_a_laptop_has() -> None:
    storage = compose_config([]).transfer_queue.backend.SimpleStorage
    assert storage.num_data_storage_units == 8
