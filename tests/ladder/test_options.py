"""The words of ``verlock climb``: the order of rungs, what each choice means, all wrong words at once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest

from harness.adapt.names import PATCH_NAMES
from harness.errors import OverrideError
from harness.ladder import command, rungs
from harness.ladder.options import ORDER, ClimbOptions, RungName
from harness.profiles.releases import named

DESIGN = ("env", "data", "forward", "rollout", "reward", "ppo-mock", "ppo", "checkpoint", "ppo-2ranks")
GOOD: dict[str, Any] = {
    "profile": "cpu",
    "first": "env",
    "last": "ppo",
    "rollout": "hf",
    "reward": "rule",
    "model": "tiny",
    "data": "tiny",
    "algorithm": "ppo",
    "checkpoint": "disk",
    "trainer": "v1",
    "seed": 1,
    "steps": 4,
    "verl_source": None,
    "without_patches": [],
    "overrides": [],
    "runs": Path("runs"),
}


def test_the_rungs_are_the_designs_in_its_order() -> None:
    assert ORDER == get_args(RungName) == DESIGN
    assert tuple(rungs._MODULES) == DESIGN


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [
        ("env", "ppo", DESIGN[:7]),
        ("env", "ppo-2ranks", DESIGN),
        ("env", "reward", DESIGN[:5]),
        ("ppo", "ppo", ("ppo",)),
        ("forward", "rollout", ("forward", "rollout")),
    ],
)
def test_from_and_to(first: Any, last: Any, expected: tuple[str, ...]) -> None:
    assert replace(ClimbOptions(), first=first, last=last).rungs == expected


def test_without_checkpoints_their_rung_is_left_out() -> None:
    full = replace(ClimbOptions(), last="ppo-2ranks")
    assert full.rungs == DESIGN
    assert replace(full, checkpoint="mock").rungs == DESIGN
    assert replace(full, checkpoint="none").rungs == tuple(name for name in DESIGN if name != "checkpoint")


def test_from_above_to_is_refused() -> None:
    with pytest.raises(OverrideError, match="--from ppo comes after --to env"):
        _ = replace(ClimbOptions(), first="ppo", last="env").rungs


def test_good_words_become_options(tmp_path: Path) -> None:
    (tmp_path / "verl").mkdir()
    (tmp_path / "verl" / "__init__.py").touch()
    given = GOOD | {
        "trainer": "v0",
        "without_patches": [PATCH_NAMES[0]],
        "verl_source": tmp_path,
        "overrides": ["a=1"],
    }
    options = command.parse(**given)
    assert options.use_v1 is False
    assert options.without_patches == {PATCH_NAMES[0]}
    assert options.verl_source == tmp_path.resolve()
    assert options.overrides == ("a=1",)


WRONG = [
    ({"first": "rolout"}, "--from rolout is unknown"),
    ({"last": "top"}, "--to top is unknown"),
    ({"rollout": "vllm"}, "--rollout vllm is unknown"),
    ({"algorithm": "dpo"}, "--algorithm dpo is unknown"),
    ({"checkpoint": "tape"}, "--checkpoint tape is unknown"),
    ({"trainer": "v2"}, "--trainer v2 is unknown"),
    ({"without_patches": ["pinning"]}, "--without-patch pinning names no patch"),
    ({"model": "/no/model"}, "--model /no/model is not there"),
    ({"data": "no.parquet"}, "--data no.parquet is not there"),
    ({"verl_source": Path("/no/checkout")}, "--verl-source /no/checkout is no checkout of verl"),
    ({"overrides": ["trainer.nnodes"]}, "trainer.nnodes is no Hydra override"),
]
# The keys of another release, and a trainer that this one does not have.
OLDER = [
    ("0.8.0", {"trainer": "v1"}, "verl 0.8.0 has no v1 trainer"),
    ("0.8.0", {"overrides": ["trainer.use_v1=True"]}, "verl 0.8.0 has no key trainer.use_v1"),
    ("0.7.1", {"overrides": ["critic.fsdp.seed=3"]}, "verl 0.7.1 has no key critic.fsdp.seed"),
    ("0.9.1", {"overrides": ["critic.model.fsdp_config.seed=3"]}, "verl 0.9.1 has no key critic.model"),
]


@pytest.mark.parametrize(("changed", "said"), WRONG)
def test_a_wrong_word_is_named_with_the_right_ones(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(OverrideError, match=said) as caught:
        command.parse(**GOOD | changed)
    (problem,) = caught.value.problems
    assert problem.todo


@pytest.mark.parametrize(("verl", "changed", "said"), OLDER)
def test_what_a_release_does_not_have_is_refused(verl: str, changed: dict[str, Any], said: str) -> None:
    given = GOOD | {"profile": named("cpu", verl), "trainer": None} | changed
    with pytest.raises(OverrideError, match=said) as caught:
        command.parse(**given)
    (problem,) = caught.value.problems
    assert problem.todo


@pytest.mark.parametrize(("verl", "use_v1"), [("0.9.1", True), ("0.8.0", False), ("0.7.1", False)])
def test_without_a_word_the_trainer_is_the_releases_own_default(verl: str, use_v1: bool) -> None:
    options = command.parse(**GOOD | {"profile": named("cpu", verl), "trainer": None})
    assert options.use_v1 is use_v1


def test_all_wrong_words_are_named_at_once() -> None:
    changed = {key: value for one, _ in WRONG for key, value in one.items()}
    with pytest.raises(OverrideError) as caught:
        command.parse(**GOOD | changed)
    assert len(caught.value.problems) == len(WRONG)


@pytest.mark.parametrize("changed", [{"first": "ppo"}, {"last": "env"}, {"last": "ppo-2ranks"}])
def test_learning_has_rungs_of_its_own(changed: dict[str, Any]) -> None:
    assert command.parse(**GOOD | {"learn": True}).last == "ppo"
    with pytest.raises(OverrideError, match="--learn together with"):
        command.parse(**GOOD | changed | {"learn": True})


def test_which_reward_scores() -> None:
    ours = ClimbOptions().reward_function()
    assert ours is not None
    assert (ours[0].name, ours[1]) == ("rewards.py", "arithmetic")
    mock = replace(ClimbOptions(), reward="mock").reward_function()
    assert mock is not None
    assert mock[1] == "mock"
    assert replace(ClimbOptions(), data="/rows.parquet").reward_function() is None  # verl's own rule


def test_a_users_reward(tmp_path: Path) -> None:
    file = tmp_path / "a:b.py"
    file.write_text("def score(**row): return 1.0\n")
    assert replace(ClimbOptions(), reward=f"{file}:score").reward_function() == (file, "score")


def test_a_reward_that_its_file_does_not_define(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("LIMIT = 3\ndef score(**row): return 1.0\n")
    for name, said in (("scores", "did you mean score"), ("LIMIT", "a plain value, not a function")):
        with pytest.raises(OverrideError, match=said):
            replace(ClimbOptions(), reward=f"{file}:{name}").reward_function()


@pytest.mark.parametrize(
    ("reward", "said"), [("rules", "is no reward"), ("/no/such.py:f", "no such file"), (":f", "is no reward")]
)
def test_a_reward_that_is_none(reward: str, said: str) -> None:
    with pytest.raises(OverrideError, match=said):
        replace(ClimbOptions(), reward=reward).reward_function()
