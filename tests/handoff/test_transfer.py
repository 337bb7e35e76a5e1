"""From a local run to a cluster: every key judged, with its reason, and every rung's conclusion too."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.console import Output
from harness.errors import RecordError
from harness.evidence.model import Run, Rung
from harness.handoff.bundle import Order, bundle
from harness.handoff.conclusions import conclusions
from harness.handoff.overrides import for_job
from harness.handoff.transfer import Transfer, rule, rules, table, transfer
from harness.handoff.words import bare, read, shell
from harness.ladder.inputs import Inputs
from harness.ladder.options import ORDER, ClimbOptions
from harness.ladder.overrides import for_rung
from harness.profiles import load
from harness.profiles.hydra import word

SITE = "/home/me/verlock/harness"
USER = (
    "algorithm.kl_ctrl.kl_coef=0.01",
    "data.train_batch_size=4",
    "actor_rollout_ref.actor.entropy_coeff=0.1",
)


def local(*extra: str, rungs: Sequence[str] = ORDER, **settings: object) -> Run:
    """A run of the cpu profile that climbed everything."""
    words = {bare(key): word(key, value) for key, value in load("cpu").overrides().items()}
    words |= {
        text.partition("=")[0]: text
        for text in (
            "data.train_files=/home/me/train.parquet",
            "actor_rollout_ref.model.path=/home/me/model",
            "data.max_response_length=16",
            "trainer.total_training_steps=4",
            f"reward.custom_reward_function.path={SITE}/data/rewards.py",
            "algorithm.adv_estimator=grpo",
            *USER,
            *extra,
        )
    }
    details: dict[str, Any] = {"command": ["/usr/bin/python", "-m", "verl.trainer.main_ppo", *words.values()]}
    return Run(
        id="a-run",
        profile="cpu",
        command=["verlock"],
        status="passed",
        started="2026-11-30T12:00:00.000Z",
        pid=1,
        settings={"rollout": "hf", "reward": "rule", "model": "tiny", "data": "tiny"}
        | {"overrides": [*USER, *extra]}
        | settings,  # type: ignore[arg-type]
        rungs=[Rung(name=n, status="passed", details=details if n.startswith("ppo") else {}) for n in rungs],
    )


def judged(run: Run, target: str = "a100") -> Transfer:
    profile = load(target)
    return transfer(run, load("cpu"), profile, for_job(profile, name="job", nodes=2, ranks=8, asked={}))


EXPECTED = {
    "algorithm.adv_estimator": ("carries", "grpo", "harness"),
    "algorithm.kl_ctrl.kl_coef": ("carries", 0.01, "user"),
    "actor_rollout_ref.actor.entropy_coeff": ("carries", 0.1, "user"),
    "reward.custom_reward_function.path": (
        "carries",
        "/opt/verlock/lib/python3.11/site-packages/harness/data/rewards.py",
        "harness",
    ),
    "data.train_batch_size": ("restored", None, "user"),
    "data.max_response_length": ("restored", None, "harness"),
    "trainer.total_training_steps": ("restored", None, "harness"),
    "actor_rollout_ref.rollout.name": ("local-only", "vllm", "harness"),
    "actor_rollout_ref.rollout.dtype": ("local-only", "bfloat16", "harness"),
    "actor_rollout_ref.actor.fsdp_config.mixed_precision.param_dtype": ("local-only", "bf16", "harness"),
    "actor_rollout_ref.model.override_config.attn_implementation": ("local-only", "sdpa", "harness"),
    "trainer.device": ("local-only", None, "harness"),
    "ray_kwargs.ray_init.num_cpus": ("local-only", None, "harness"),
    "trainer.nnodes": ("job", 2, "harness"),
    "trainer.resume_mode": ("job", "auto", "harness"),
    "data.train_files": ("job", "/data/train.parquet", "harness"),
    "actor_rollout_ref.model.path": ("job", "/models/model", "harness"),
}


@pytest.mark.parametrize("key", EXPECTED)
def test_each_key_is_judged(key: str) -> None:
    found = next(k for k in judged(local()).keys if bare(k.key) == key)
    assert (found.verdict, found.target, found.by) == EXPECTED[key]
    assert found.reason.endswith(".")


def test_offload_holds_only_where_there_was_no_room() -> None:
    key = "actor_rollout_ref.actor.fsdp_config.param_offload"
    found = next(k for k in judged(local(f"{key}=true")).keys if k.key == key)
    assert (found.verdict, found.by) == ("local-only", "user")
    assert "give it with --set" in found.reason


def test_a_reward_file_of_the_local_machine_is_not_carried() -> None:
    found = judged(local("reward.custom_reward_function.path=/home/me/mine.py"))
    key = next(k for k in found.keys if k.key == "reward.custom_reward_function.path")
    assert key.verdict == "local-only"
    assert "copy it to /data" in key.reason
    assert "reward.custom_reward_function.path" not in found.carried


@pytest.mark.parametrize(("algorithm", "v1"), [("ppo", True), ("grpo", False)])
def test_every_key_that_a_climb_sets_has_a_rule(tmp_path: Path, algorithm: Any, v1: bool) -> None:
    """A rung's own settings are neither the user's nor the target's: none may be left to chance."""
    files = {"model": tmp_path, "train": tmp_path, "val": tmp_path, "is_tiny": True}
    inputs = Inputs(**files, prompt_length=1, response_length=1, batch=1, group=1)  # type: ignore[arg-type]
    options = ClimbOptions(algorithm=algorithm, use_v1=v1)
    keys = for_rung(options, inputs, rollout="hf", steps=1)
    assert len(keys) > 30
    assert [key for key in keys if rule(key) is None] == []


def test_each_rule_is_used() -> None:
    """A rule that another one before it hides would be a lie to its reader."""
    for number, each in enumerate(rules()):
        example = each.keys[0].replace("*", "x")
        assert rule(example) is each, (number, example)


def test_what_carries_over_reaches_the_job_files(place: Any) -> None:
    folder = place.root / "runs" / "local"
    folder.mkdir()
    (folder / "run.json").write_text(local().json_text())
    made, _ = bundle("cpu", Order(run=folder), Output(as_json=True))
    script = (made / "jobs" / "docker-run.sh").read_text()
    assert "algorithm.adv_estimator=grpo" in script
    assert "algorithm.kl_ctrl.kl_coef=0.01" in script
    assert "train_batch_size" not in script
    document = json.loads((made / "transfer.json").read_text())
    assert Transfer.model_validate(document).carried["algorithm.adv_estimator"] == "grpo"


def test_the_table_names_every_key_once() -> None:
    found = judged(local())
    lines = list(table(found))
    for key in found.keys:
        assert sum(line.startswith(f"  {bare(key.key)}:") for line in lines) == 1
    assert sum(line.startswith("  ppo ") for line in lines) == 1


def test_a_run_without_a_trainer_has_nothing_to_carry() -> None:
    with pytest.raises(RecordError, match="started no trainer"):
        judged(local(rungs=("env", "data")))


def answers(run: Run, source: str, target: str) -> dict[str, str]:
    return {c.rung: c.transfers for c in conclusions(run, load(source), load(target))}


def test_conclusions_from_a_laptop_on_an_a100() -> None:
    found = answers(local(), "cpu", "a100")
    assert found == {
        **dict.fromkeys(ORDER, "partly"),
        "env": "no",
        "data": "no",
        "rollout": "no",
        "reward": "yes",
    }
    reasons = {c.rung: c.reason for c in conclusions(local(), load("cpu"), load("a100"))}
    assert "hf generated here, vllm does there" in reasons["rollout"]
    assert "dtype float32 here, bfloat16 there" in reasons["forward"]
    assert "the tiny model here" in reasons["ppo"]


def test_conclusions_on_the_same_hardware_with_real_inputs() -> None:
    run = local(model="/models/m", data="/data/d")
    found = answers(run, "cpu", "cpu")
    assert (found["data"], found["forward"], found["rollout"], found["ppo"]) == ("yes",) * 4
    assert found["env"] == "partly"


def test_nothing_is_concluded_from_what_was_not_climbed_or_was_mocked() -> None:
    run = local(rungs=("env", "reward"), reward="mock")
    assert set(answers(run, "cpu", "cpu").values()) == {"no", "partly"}
    assert answers(run, "cpu", "cpu")["reward"] == "no"
    failed = run.model_copy(update={"rungs": [Rung(name="data", status="failed")]})
    assert (
        next(c for c in conclusions(failed, load("cpu"), load("cpu")) if c.rung == "data").status == "failed"
    )


@pytest.mark.parametrize(
    "value", ["plain", "with space", "it's", "ü[x]", ["a", 1, True], None, 0.5, {"k": "v"}]
)
def test_a_word_is_read_back_as_it_was_written(value: object) -> None:
    assert read([word("+some.key", value)]) == {"+some.key": value}
    assert shell({"some.key": value})[0]
