"""Who set each value of verl's configuration; nothing is started to say it."""

from __future__ import annotations

import importlib.util

import pytest

from harness.evidence.documents import PrintedConfig
from harness.ladder.origins import evaluate

DEFAULT = {"a.x": 1, "a.y": 2, "b": 1, "c": 1, "d": 1, "e.f.g": 1}
CONFIG = {"a.x": 5, "a.y": 2, "b": 9, "c": 1, "d": 7, "e.f.g": 3, "new": 1}
LAYERS = {"rung": ["a.x", "c"], "profile": ["b", "+e.f"], "user": ["+a.x", "+new"]}


def test_the_last_layer_that_set_a_key_is_its_origin() -> None:
    found = {value.key: value.origin for value in evaluate(CONFIG, DEFAULT, LAYERS)}
    assert found == {
        "a.x": "user",
        "a.y": "verl default",
        "b": "profile",
        "c": "rung",  # set to what it was: still set
        "d": "follows",
        "e.f.g": "profile",  # its group was set
        "new": "user",
    }


@pytest.mark.skipif(importlib.util.find_spec("verl") is None, reason="verl comes with the lock")
def test_a_climbs_values_are_told_apart() -> None:
    from harness.ladder.options import ClimbOptions
    from harness.ladder.origins import of_climb

    options = ClimbOptions(overrides=("trainer.nnodes=1", "+trainer.mine=3"), seed=7)
    values = of_climb(options)
    PrintedConfig.model_validate({"config": [vars(value) for value in values]})
    found = {value.key: value for value in values}
    assert (found["trainer.nnodes"].origin, found["trainer.mine"].value) == ("user", 3)
    assert (found["data.seed"].origin, found["data.seed"].value) == ("rung", 7)
    assert (found["trainer.device"].origin, found["trainer.device"].default) == ("profile", "cuda")
    assert found["algorithm.gamma"].origin == "verl default"
    assert found["critic.ppo_mini_batch_size"].origin == "follows"
    assert str(found["data.train_files"].value).startswith("runs/<id>/")
