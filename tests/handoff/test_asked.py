"""The words of a hand-off: each slip is told before the image is read, with what to write instead."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.errors import OverrideError
from harness.handoff.asked import config_of, judge
from harness.handoff.parameters import Asked
from harness.profiles import load

CONFIG: dict[str, Any] = {
    "trainer": {"total_epochs": 30, "logger": ["console"], "val_before_train": True, "nnodes": 1},
    "data": {"train_files": "/data/train.parquet", "max_response_length": 512},
    "actor_rollout_ref": {
        "actor": {"optim": {"lr": 1e-6}, "fsdp_config": {"mixed_precision": {"param_dtype": "fp32"}}},
        "model": {"override_config": {}},
    },
}
LR = "actor_rollout_ref.actor.optim.lr"
DTYPE = "actor_rollout_ref.actor.fsdp_config.mixed_precision.param_dtype"


def told(*, config: Any = CONFIG, **asked: Any) -> list[str]:
    """What is said about the words; each slip has a reason and a way out."""
    try:
        judge(load("cpu"), Asked(**asked), config)
    except OverrideError as error:
        problems = error.problems
    else:
        problems = ()
    assert all(problem.why and problem.todo for problem in problems)
    return [f"{problem.what} | {problem.why} | {problem.todo}" for problem in problems]


RIGHT = [
    f"{LR}=2e-6",
    f"{LR}=1",
    "trainer.total_epochs=3",
    "trainer.val_before_train=false",
    'trainer.logger=["console"]',
    "data.train_files=/data/mine.parquet",
    'data.train_files=["/data/a.parquet", "/data/b.parquet"]',
    "data.train_files=null",
    "+trainer.mine=1",
    "++trainer.total_epochs=3",
    f"{DTYPE}=bf16",
    f"+{DTYPE}=bf16",
    "actor_rollout_ref.model.override_config={}",
]
WRONG = [
    ("lr", "no Hydra override"),
    ("=3", "no Hydra override"),
    ("trainer.total_epoch=3", "did you mean trainer.total_epochs?"),
    ("+trainer.total_epochs=3", "has this key already"),
    ("trainer.total_epochs=abc", "another type"),
    ("trainer.total_epochs=true", "another type"),
    ("trainer.val_before_train=1", "another type"),
    ("trainer.logger=console", "another type"),
    ("trainer.nnodes=7", "give --nodes"),
    ("++trainer.n_gpus_per_node=7", "give --gpus-per-node"),
    ("data.train_files=/x/y.parquet", "no volume of the job holds /x/y.parquet"),
    ('data.train_files=["/data/a", "/database/b"]', "no volume of the job holds /database/b"),
]


@pytest.mark.parametrize("text", RIGHT)
def test_what_verl_takes_is_taken(text: str) -> None:
    assert told(overrides=(text,)) == []


@pytest.mark.parametrize(("text", "expected"), WRONG)
def test_what_it_does_not_take_is_told(text: str, expected: str) -> None:
    (found,) = told(overrides=(text,))
    assert expected in found
    assert text in found


SIZES = [
    ({"time_limit": "soon"}, "is no time"),
    ({"time_limit": "0:00:00"}, "leaves no time"),
    ({"name": "No Name"}, "is no name"),
    ({"queue": "a b"}, "is no queue"),
    ({"volumes": ("/nowhere=/x",)}, "names no volume"),
    ({"volumes": ("/data=relative",)}, "is no path"),
    ({"volumes": ("/data=pvc:",)}, "names no claim"),
    ({"volumes": ("/data=pvc:Not This",)}, "names no claim"),
]


@pytest.mark.parametrize(("asked", "expected"), SIZES)
def test_sizes_and_places_are_judged(asked: dict[str, Any], expected: str) -> None:
    (found,) = told(**asked)
    assert expected in found


def test_all_wrong_words_are_told_at_once() -> None:
    wrong: dict[str, Any] = {}
    for asked, _ in SIZES[:1] + SIZES[2:5]:
        wrong |= asked
    assert len(told(**wrong, overrides=tuple(text for text, _ in WRONG))) == 4 + len(WRONG)


def test_without_a_proof_only_other_releases_keys_are_known() -> None:
    assert told(config=None, overrides=("trainer.nowhere=3",)) == []
    assert told(config=None, overrides=("critic.model.fsdp_config.param_offload=true",)) != []


@pytest.mark.parametrize("text", ["a: [", "- 1", "\x00"])
def test_a_configuration_that_cannot_be_read_is_none(tmp_path: Path, text: str) -> None:
    assert config_of(tmp_path) is None
    (tmp_path / "config.yaml").write_text(text)
    assert config_of(tmp_path) is None
