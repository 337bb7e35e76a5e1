"""Overrides in layers, composed by Hydra itself; words that are wrong are all named, with the nearest key."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path

import pytest

from harness.errors import OverrideError
from harness.ladder import compose
from harness.ladder.inputs import Inputs
from harness.ladder.options import ClimbOptions
from harness.ladder.overrides import for_rung, words
from harness.profiles import load
from harness.profiles.hydra import word

WITH_VERL = pytest.mark.skipif(importlib.util.find_spec("verl") is None, reason="verl comes with the lock")
PROFILE = load("cpu")
INPUTS = Inputs(
    model=Path("/m"),
    train=Path("/t.parquet"),
    val=Path("/v.parquet"),
    is_tiny=True,
    prompt_length=64,
    response_length=16,
    batch=8,
    group=4,
)
BATCH = "data.train_batch_size"
MICRO = "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu"
ROLLOUT_NAME = "actor_rollout_ref.rollout.name"
COMPUTE = "actor_rollout_ref.actor.fsdp_config.mixed_precision.param_dtype"


@pytest.mark.parametrize(
    ("value", "text"),
    [(True, "true"), (3e-3, "0.003"), ([1, "a"], '[1, "a"]'), ("gae", "gae"), (None, "null")],
)
def test_a_value_in_hydras_notation(value: object, text: str) -> None:
    """Python's ``True`` and ``None`` would be strings to Hydra."""
    assert word("k", value) == f"k={text}"


def value(found: list[str], key: str) -> str:
    """The one word for ``key``, whatever its prefix."""
    (only,) = [text for text in found if text.split("=", 1)[0].lstrip("+~") == key]
    return only.split("=", 1)[1]


def test_later_layers_win_and_each_key_stands_once() -> None:
    rung = words(PROFILE, {"reward.num_workers": 5, BATCH: 8}, ())
    user = words(PROFILE, {"reward.num_workers": 5, BATCH: 8}, (f"{BATCH}=2",))
    assert value(words(PROFILE, {}, ()), "reward.num_workers") == "1"
    assert value(rung, "reward.num_workers") == "5"
    assert (value(rung, BATCH), value(user, BATCH)) == ("8", "2")


@pytest.mark.parametrize("prefix", ["", "+", "++"])
def test_a_plus_does_not_make_another_key(prefix: str) -> None:
    """Two words for one key: Hydra would refuse, or take whichever comes last."""
    found = words(PROFILE, {}, (f"{prefix}{COMPUTE}=bf16",))
    assert value(found, COMPUTE) == "bf16"
    assert f"{prefix}{COMPUTE}=bf16" in found


def test_the_users_last_word_counts() -> None:
    found = words(PROFILE, {}, (f"{BATCH}=2", f"+{BATCH}=3"))
    assert value(found, BATCH) == "3"


def test_a_rehearsal_is_the_profiles_policy_with_its_settings_for_a_cpu_on_top() -> None:
    a100 = load("a100")
    device, rehearsed = words(a100, {}, (), on_cpu=False), words(a100, {}, (), on_cpu=True)
    assert (value(device, COMPUTE), value(rehearsed, COMPUTE)) == ("bf16", "fp32")
    assert value(device, ROLLOUT_NAME) == "vllm"
    assert value(rehearsed, "trainer.device") == "cpu"
    assert not [text for text in device if text.startswith("trainer.device=")]


def test_what_the_card_holds_at_once_is_the_profiles_to_say() -> None:
    """A rung that put 4 sequences on a P40 would prove another memory than the policy's."""
    rung: dict[str, object] = {MICRO: 4, BATCH: 8}
    assert value(words(PROFILE, rung, ()), MICRO) == "4"
    p40 = words(load("p40"), rung, ())
    assert (value(p40, MICRO), value(p40, BATCH)) == ("1", "8")
    assert value(words(load("p40"), rung, (f"{MICRO}=2",)), MICRO) == "2"


@WITH_VERL
@pytest.mark.parametrize("v1", [True, False])
@pytest.mark.parametrize(
    ("algorithm", "estimator", "manager"),
    [
        ("ppo", "gae", "naive"),
        ("grpo", "grpo", "naive"),
        ("rloo", "rloo", "naive"),
        ("reinforce_plus_plus", "reinforce_plus_plus", "naive"),
        ("dapo", "grpo", "dapo"),
    ],
)
def test_each_algorithm_composes(algorithm: str, estimator: str, manager: str, v1: bool) -> None:
    options = ClimbOptions(algorithm=algorithm, use_v1=v1)  # type: ignore[arg-type]
    config = compose.compose_config(words(PROFILE, for_rung(options, INPUTS, rollout="hf", steps=2), ()))
    assert config.algorithm.adv_estimator == estimator
    assert config.reward.reward_manager.name == manager
    assert config.algorithm.filter_groups.enable is (algorithm == "dapo" and v1)


@pytest.mark.parametrize("algorithm", ["ppo", "grpo", "rloo", "reinforce_plus_plus", "dapo"])
@pytest.mark.parametrize("use_v1", [True, False])
@WITH_VERL
def test_what_a_rung_sets_is_what_verl_reads(algorithm: str, use_v1: bool) -> None:
    """Each key composes, and the seeds reach every place where verl draws."""
    options = replace(ClimbOptions(), algorithm=algorithm, use_v1=use_v1, seed=11)  # type: ignore[arg-type]
    config = compose.compose_config(words(PROFILE, for_rung(options, INPUTS, rollout="hf", steps=4), ()))
    assert config.algorithm.adv_estimator == {"ppo": "gae", "dapo": "grpo"}.get(algorithm, algorithm)
    assert config.trainer.use_v1 is use_v1
    assert config.trainer.total_training_steps == 4
    seeds = {
        config.data.seed,
        config.actor_rollout_ref.rollout.seed,
        config.actor_rollout_ref.actor.fsdp_config.seed,
    }
    assert seeds == {11}
    assert config.critic.fsdp.seed == (11 if algorithm == "ppo" else 42)
    assert config.actor_rollout_ref.actor.fsdp_config.mixed_precision.param_dtype == "fp32"
    assert config.actor_rollout_ref.rollout.name == "hf"


# --- words that are wrong -------------------------------------------------------------------------------


WRONG = [
    ("data.train_batch_sise=4", "did you mean data.train_batch_size?"),
    ("actor_rollout_ref.rolout.n=4", "did you mean actor_rollout_ref.rollout.n?"),
    ("trainer.nnode=1", "did you mean trainer.nnodes?"),
    ("data.train_batch_size=[", "data.train_batch_size"),
]


@pytest.mark.parametrize(("text", "said"), WRONG)
@WITH_VERL
def test_a_wrong_word_is_named_with_the_nearest_key(text: str, said: str) -> None:
    with pytest.raises(OverrideError, match="does not take") as caught:
        compose.compose_config((text,))
    (problem,) = caught.value.problems
    assert text in problem.what
    assert said in "\n".join(problem.lines())


@WITH_VERL
def test_all_wrong_words_are_named_at_once() -> None:
    """Hydra names one, and the next one after half a minute of imports."""
    with pytest.raises(OverrideError) as caught:
        compose.compose_config(("data.train_batch_sise=4", "trainer.nnode=1"))
    assert [problem.where for problem in caught.value.problems] == ["data.train_batch_sise", "trainer.nnode"]
