"""What differs between releases of verl: the table against itself and against what was measured elsewhere."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from harness.adapt import verls
from harness.ladder.inputs import Inputs
from harness.ladder.options import ClimbOptions
from harness.ladder.overrides import for_rung, words
from harness.profiles import load, releases

TABLE = verls.table()
NEWEST = TABLE.releases[-1]
LOCKED = releases.versions(load("cpu"))
ALGORITHMS = ("ppo", "grpo", "rloo", "reinforce_plus_plus", "dapo")


def rendered(verl: str, algorithm: str, *, trainer: str, model: Path = Path("/m")) -> list[str]:
    """The words that a trainer rung of this release is started with."""
    options = ClimbOptions(algorithm=algorithm, use_v1=trainer == "v1", reward="mock")  # type: ignore[arg-type]
    inputs = Inputs(
        model=model,
        train=Path("/t"),
        val=Path("/v"),
        is_tiny=True,
        prompt_length=64,
        response_length=16,
        batch=8,
        group=4,
    )
    profile = load(releases.named("cpu", verl))
    return words(profile, for_rung(options, inputs, rollout="hf", steps=2), ())


def wrong(found: list[str], verl: str) -> list[str]:
    """Keys that this release does not have, or has although a plus is to add them; unknown ones too."""
    keys = [(text.startswith("+"), text.split("=", 1)[0].lstrip("+")) for text in found]
    return [key for plus, key in keys if verls.present(key, verl) is not (not plus)]


CASES = [
    (verl, algorithm, trainer)
    for verl in LOCKED
    for algorithm in ALGORITHMS
    for trainer in verls.trainers(verl)
]


@pytest.mark.parametrize(("verl", "algorithm", "trainer"), CASES)
def test_every_word_is_one_that_the_release_has(
    verl: str, algorithm: str, trainer: str, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["Qwen2ForCausalLM"]}))
    assert wrong(rendered(verl, algorithm, trainer=trainer, model=tmp_path), verl) == []


@pytest.mark.parametrize(
    ("given", "verl", "key"),
    [
        (NEWEST, "0.8.0", "trainer.use_v1"),
        (NEWEST, "0.8.0", "actor_rollout_ref.rollout.seed"),
        (NEWEST, "0.7.1", "critic.fsdp.model_dtype"),
        ("0.8.0", "0.7.1", "critic.fsdp.seed"),
        ("0.7.1", "0.8.0", "critic.model.fsdp_config.model_dtype"),
        ("0.7.1", NEWEST, "trainer.use_legacy_worker_impl"),
    ],
)
def test_the_words_of_another_release_are_found(given: str, verl: str, key: str) -> None:
    """The planted fault of the test above, and the check that people's own overrides go through."""
    found = rendered(given, "ppo", trainer=verls.trainers(given)[0])
    assert key in wrong(found, verl)
    assert key in {problem.where for problem in verls.misplaced(found, verl)}


def test_of_the_newest_release_nothing_is_changed() -> None:
    given: dict[str, object] = {**load("cpu").overrides(), "critic.model.path": "/m"}
    assert verls.settings(given, NEWEST, on_cpu=True) == given


# Copied by hand from a matrix that was composed apart from this table (issue 8), a row each.
MEASURED = {
    "data.reward_fn_key": "-yyyyyy",
    "actor_rollout_ref.actor.fsdp_config.model_dtype": "---yyyy",
    "actor_rollout_ref.actor.fsdp_config.param_offload": "yyyyyyy",
    "actor_rollout_ref.fsdp_config.cpu_offload": "-------",
    "critic.model.fsdp_config.param_offload": "yyyyy--",
    "critic.fsdp.param_offload": "-----yy",
    "reward.reward_manager.name": "----yyy",
    "trainer.device": "-yyyyyy",
    "trainer.use_legacy_worker_impl": "--yyy--",
    "trainer.use_v1": "------y",
    "ray_init.num_cpus": "-yy----",
    "ray_kwargs.ray_init.num_cpus": "---yyyy",
}


@pytest.mark.parametrize("key", MEASURED)
def test_a_row_measured_elsewhere(key: str) -> None:
    assert [verls.present(key, verl) for verl in TABLE.releases] == [cell == "y" for cell in MEASURED[key]]


@pytest.mark.parametrize("move", TABLE.moved, ids=lambda move: move.new)
def test_a_move_is_where_the_keys_say(move: verls.Moved) -> None:
    """The new key is there from its release on; the old one was in the release before."""
    place = TABLE.releases.index(move.since)
    before, since = TABLE.releases[place - 1], TABLE.releases[place]
    known = [key for key in TABLE.keys if key == move.new or key.startswith(f"{move.new}.")]
    measured = [key for key in known if verls.present(key, since)]
    assert measured, "no key of it was composed"
    for key in measured:
        assert verls.present(key, before) is False, key
        written = verls.at(key, before)
        assert (written is None) == (move.old is None), key
        if written is not None and not written.startswith("+"):
            assert verls.present(written, before) is not False, f"{key}: {before} has no {written}"


def test_a_move_that_is_wrong_is_seen() -> None:
    """The planted fault of the test above: one release too early, a section of the critic is in no tree."""
    early = TABLE.moved[5].model_copy(update={"since": "0.7.1"})
    assert early.new == "critic.fsdp"
    assert verls.present("critic.fsdp.model_dtype", early.since) is False


@pytest.mark.parametrize("extra", TABLE.settings, ids=lambda extra: extra.key)
def test_an_extra_setting_is_one_that_the_releases_before_take(extra: verls.Setting) -> None:
    place = TABLE.releases.index(extra.before)
    found = verls.present(extra.key.lstrip("+"), TABLE.releases[place - 1])
    assert found is not extra.key.startswith("+") or found is None
    assert len(extra.reason) > 20


@pytest.mark.parametrize(
    ("key", "verl", "said"),
    [
        ("critic.model.fsdp_config.param_offload", NEWEST, "critic.fsdp.param_offload"),
        ("critic.fsdp.param_offload", "0.7.1", "critic.model.fsdp_config.param_offload"),
        ("ray_init.num_cpus", NEWEST, "ray_kwargs.ray_init.num_cpus"),
        ("trainer.val_generations_to_log_to_wandb", NEWEST, "trainer.log_val_generations"),
        ("trainer.use_v1", "0.8.0", None),
        ("critic.fsdp.param_offload", NEWEST, None),
    ],
)
def test_the_key_that_is_meant(key: str, verl: str, said: str | None) -> None:
    assert verls.renamed(key, verl) == said


def test_a_problem_says_where_the_key_is_and_what_to_write() -> None:
    (problem,) = verls.misplaced(["critic.fsdp.seed=3", "data.train_batch_size=4", "+new.key=1"], "0.7.1")
    assert (problem.what, problem.where) == ("verl 0.7.1 has no key critic.fsdp.seed", "critic.fsdp.seed")
    assert problem.why == "it is in verl 0.8.0 to 0.9.1"
    assert problem.todo == "in verl 0.7.1 it is critic.model.fsdp_config.seed"


def test_a_key_that_nobody_has_looked_for_is_not_judged() -> None:
    assert verls.present("some.key", NEWEST) is None
    assert verls.misplaced(["some.key=1"], NEWEST) == []


@pytest.mark.parametrize(
    ("verl", "trainers"), [("0.9.1", ("v1", "v0")), ("0.8.0", ("v0",)), ("0.7.1", ("v0",))]
)
def test_the_trainers_of_a_release(verl: str, trainers: tuple[str, ...]) -> None:
    assert verls.trainers(verl) == trainers


def test_releases_are_in_order() -> None:
    assert all(verls._older(one, two) for one, two in pairwise(TABLE.releases))
    assert set(LOCKED) <= set(TABLE.releases)


class Rollout:
    """verl's RolloutConfig, as far as the seed goes."""

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)


@pytest.mark.parametrize(
    ("config", "seed"),
    [
        (Rollout(seed=7, engine_kwargs={"hf": {"seed": 1}}), 7),
        (Rollout(engine_kwargs={"hf": {"seed": 5}}), 5),
        (Rollout(engine_kwargs={"vllm": {}}), 0),
        (Rollout(seed=None, engine_kwargs={"hf": None}), 0),
    ],
)
def test_the_rollouts_seed(config: Any, seed: int) -> None:
    assert verls.rollout_seed(config) == seed


def test_a_value_model_is_asked_for_by_the_name_of_its_architecture(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["Qwen2ForCausalLM"]}))
    found = verls.value_model(tmp_path)
    section = "+critic.model.override_config"
    assert found[f"{section}.architectures"] == ["Qwen2ForTokenClassification"]
    assert found[f"{section}.classifier_dropout"] == 0.0
    assert verls.value_model(tmp_path / "nowhere") == {}
