"""A user's configuration made small: few changes, each with its reason, and the rest as the user has it."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

if importlib.util.find_spec("verl") is None:
    pytest.skip("verl comes with the lock", allow_module_level=True)

import pyarrow as pa
import pyarrow.parquet as pq

from harness.data import first_rows, gsm8k, tiny_tokenizer
from harness.errors import DataError
from harness.ladder import compose
from harness.ladder.options import ClimbOptions
from harness.ladder.overrides import words as all_words
from harness.ladder.preflight.command_line import TRAINER, parse
from harness.ladder.preflight.prepare import prepare
from harness.ladder.preflight.settings import Settings
from harness.ladder.preflight.shrink import changes
from harness.ladder.preflight.stand_ins import Stand, not_verified
from harness.ladder.preflight.static import inspect
from harness.profiles.load import load

ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
PROFILE = load("cpu")
STAND = Stand(model="Qwen/Qwen3-8B", data=None, reward=None, prompt=100, rows=8)


@pytest.fixture(scope="module")
def base() -> dict[str, Any]:
    from omegaconf import OmegaConf

    container: dict[str, Any] = OmegaConf.to_container(compose.compose_config(()), resolve=False)  # type: ignore[assignment]
    return container


def made(base: dict[str, Any], stand: Stand = STAND, **values: Any) -> dict[str, Any]:
    """The new value of each changed key."""
    settings = with_values(base, **values)
    return {change.key: change.new for change in changes(settings, stand, PROFILE, steps=2)}


def with_values(base: dict[str, Any], **values: Any) -> Settings:
    import copy

    config = copy.deepcopy(base)
    for key, value in values.items():
        *path, last = key.replace("__", ".").split(".")
        node = config
        for part in path:
            node = node[part]
        node[last] = value
    return Settings(config)


# Values of the user's, and what becomes of some keys; none: the key is not changed.
CASES = [
    ({"data__train_batch_size": 1024}, {"data.train_batch_size": 4, f"{ACTOR}.ppo_mini_batch_size": 2}),
    (
        {"data__train_batch_size": 256, "actor_rollout_ref__actor__ppo_mini_batch_size": 256},
        {f"{ACTOR}.ppo_mini_batch_size": 4},
    ),
    (
        {"data__train_batch_size": 2, "actor_rollout_ref__rollout__n": 16},
        {"data.train_batch_size": None, f"{ROLLOUT}.n": 8},
    ),
    ({"actor_rollout_ref__rollout__n": 5}, {f"{ROLLOUT}.n": None}),
    (
        {"actor_rollout_ref__rollout__tensor_model_parallel_size": 4},
        {f"{ROLLOUT}.tensor_model_parallel_size": 1},
    ),
    ({"actor_rollout_ref__actor__optim__lr": 3e-7}, {f"{ACTOR}.optim.lr": None}),
    ({"actor_rollout_ref__actor__optim__lr_warmup_steps": 10}, {f"{ACTOR}.optim.lr_warmup_steps": 0}),
    ({"actor_rollout_ref__actor__clip_ratio_high": 0.28}, {f"{ACTOR}.clip_ratio_high": None}),
    (
        {"actor_rollout_ref__actor__ppo_max_token_len_per_gpu": 50},
        {f"{ACTOR}.ppo_max_token_len_per_gpu": 116},
    ),
    (
        {"actor_rollout_ref__actor__fsdp_config__param_offload": True},
        {f"{ACTOR}.fsdp_config.param_offload": False},
    ),
    (
        {"actor_rollout_ref__model__enable_activation_offload": True},
        {"actor_rollout_ref.model.enable_activation_offload": False},
    ),
    (
        {"actor_rollout_ref__model__lora__merge": True},
        {"actor_rollout_ref.model.lora.merge": False},
    ),
    ({"trainer__rollout_data_dir": "/shared/x"}, {"trainer.rollout_data_dir": None}),
    ({"reward__reward_model__enable": True}, {"reward.reward_model.enable": False}),
]


@pytest.mark.parametrize(("values", "expected"), CASES)
def test_what_is_changed_and_what_is_not(base: dict[str, Any], values: Any, expected: Any) -> None:
    found = made(base, **values)
    for key, new in expected.items():
        if new is None and key != "trainer.rollout_data_dir":
            assert key not in found
        else:
            assert found[key] == new


def test_a_larger_micro_batch_says_why_it_is_larger(base: dict[str, Any]) -> None:
    key = f"{ACTOR}.ppo_micro_batch_size_per_gpu"
    reasons = {}
    for value in (3, 64):
        settings = with_values(base, **{key: value, f"{ROLLOUT}.n": 4})
        (change,) = [one for one in changes(settings, STAND, PROFILE, steps=2) if one.key == key]
        reasons[value] = change.why
    assert reasons == {3: "3 does not divide the 8 that there are", 64: "no more than there are"}


def test_what_stays_the_users_own_is_no_change(tmp_path: Path) -> None:
    gsm8k.write(tmp_path / "t.parquet", gsm8k.make(20, seed=2))
    text = "def score(data_source, solution_str, ground_truth, extra_info): return 1.0\n"
    (tmp_path / "r.py").write_text(text)
    given = [
        "data.train_files=t.parquet",
        "data.val_files=t.parquet",
        f"{ROLLOUT}.name=vllm",
        "reward.custom_reward_function.path=r.py",
        "reward.custom_reward_function.name=score",
    ]
    asked = parse(["python", "-m", TRAINER, *given], environ={}, folder=tmp_path)
    ready = prepare(inspect(asked), ClimbOptions(steps=2, runs=tmp_path / "runs"), stand_in=False)
    assert not [change for change in ready.changes if "custom_reward_function" in change.key]
    assert ready.options.reward == f"{tmp_path}/r.py:score"
    assert not [word for word in ready.options.overrides if "custom_reward_function" in word]


def test_each_change_has_a_reason(base: dict[str, Any]) -> None:
    assert all(change.why and change.key for change in changes(Settings(base), STAND, PROFILE, steps=2))


def test_what_stays_open_is_named(base: dict[str, Any]) -> None:
    import copy

    config = copy.deepcopy(base)
    config["actor_rollout_ref"]["rollout"]["name"] = "vllm"
    config["trainer"]["nnodes"] = 2
    config["distillation"]["enabled"] = True
    text = "\n".join(not_verified(Settings(config), STAND))
    for word in ("rollout engine vllm", "16 GPUs", "Qwen/Qwen3-8B", "teachers"):
        assert word in text


def test_the_small_run_is_the_users_configuration_but_for_the_named_changes(tmp_path: Path) -> None:
    from omegaconf import OmegaConf

    gsm8k.write(tmp_path / "t.parquet", gsm8k.make(40, seed=2))
    given = [
        "data.train_files=t.parquet",
        "data.val_files=t.parquet",
        "data.train_batch_size=32",
        "algorithm.adv_estimator=rloo",
        f"{ROLLOUT}.name=sglang",
        f"{ROLLOUT}.n=4",
        f"{ROLLOUT}.temperature=0.7",
        f"{ACTOR}.optim.lr=3e-7",
        f"{ACTOR}.ppo_mini_batch_size=8",
        f"{ACTOR}.ppo_micro_batch_size_per_gpu=1",
        f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu=1",
        "trainer.project_name=mine",
        "+actor_rollout_ref.model.override_config.attn_implementation=flash_attention_3",
    ]
    asked = parse(["python", "-m", TRAINER, *given], environ={}, folder=tmp_path)
    ready = prepare(inspect(asked), ClimbOptions(steps=2, runs=tmp_path / "runs"), stand_in=False)
    users = OmegaConf.to_container(compose.compose_config(given), resolve=True)
    small = OmegaConf.to_container(
        compose.compose_config(all_words(PROFILE, {}, ready.options.overrides)), resolve=True
    )
    changed = {change.key for change in ready.changes}
    different = {key for key, value in flat(small).items() if flat(users).get(key, "absent") != value}
    different = {key for key in different if not key.startswith("critic.")}  # rloo has none
    # What follows from a changed key by interpolation is no change of ours.
    follows = {
        key for key in different if key not in changed and not any(key.startswith(f"{c}.") for c in changed)
    }
    raw = OmegaConf.to_container(compose.compose_config(given), resolve=False)
    assert all("${" in str(flat(raw).get(key)) for key in follows), follows
    assert f"{ACTOR}.optim.lr" not in different
    assert pq.read_metadata(ready.options.data).num_rows == 8
    assert ready.options.reward == "rule"


def flat(node: Any, prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in node.items():
        if isinstance(value, dict) and value:
            found |= flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found


def rows(path: Path, prompts: list[str], **columns: Any) -> Path:
    made = [{"prompt": [{"role": "user", "content": p}], "data_source": "x", **columns} for p in prompts]
    pq.write_table(pa.Table.from_pylist(made), path)
    return path


def test_the_first_rows_that_fit_without_images(tmp_path: Path) -> None:
    source = rows(tmp_path / "a.parquet", ["x" * 500, "one", "two", "y" * 500, "three"], images=["a.png"])
    kept = first_rows.keep([source], tmp_path, rows=2, tokenizer=tiny_tokenizer.make(), limit=100)
    assert (kept.rows, kept.passed_over, kept.dropped) == (2, 1, ("images",))
    assert [row["prompt"][0]["content"] for row in pq.read_table(kept.path).to_pylist()] == ["one", "two"]
    again = first_rows.keep([source], tmp_path, rows=2, tokenizer=tiny_tokenizer.make(), limit=100)
    assert again.path == kept.path


def test_no_row_that_fits(tmp_path: Path) -> None:
    source = rows(tmp_path / "a.parquet", ["x" * 500])
    with pytest.raises(DataError, match="no row has a prompt of at most 100 tokens"):
        first_rows.keep([source], tmp_path, rows=2, tokenizer=tiny_tokenizer.make(), limit=100)
