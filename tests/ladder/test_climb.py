"""The first five rungs, climbed for real: a planted fault is found at the lowest rung that can show it."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

if importlib.util.find_spec("verl") is None:
    pytest.skip("verl comes with the lock", allow_module_level=True)

from harness.evidence import events

Climb = Callable[..., Any]
FAULTS = Path(__file__).parents[1] / "faults"
RATE = "actor_rollout_ref.actor.optim.lr"
COMPUTE = "+actor_rollout_ref.actor.fsdp_config.mixed_precision.param_dtype"


def test_the_climb_to_reward(climb: Climb) -> None:
    """In seconds a user knows that environment, data, losses, rollout and reward work."""
    done = climb("--to", "reward")
    assert done.exit_code == 0, done.stdout
    run = done.run
    assert (run.status, run.exit_code, run.failure, run.profile) == ("passed", 0, None, "cpu")
    assert [(rung.name, rung.status) for rung in run.rungs] == [
        (name, "passed") for name in ("env", "data", "forward", "rollout", "reward")
    ]
    assert all(rung.verified and rung.seconds is not None for rung in run.rungs)
    assert done.document["id"] == run.id
    assert Path(done.document["run"]).resolve() == done.folder
    assert run.versions["verl"] == "0.9.1"
    assert set(run.fingerprint["parts"]) == {"profile", "lock", "harness"}  # type: ignore[arg-type]
    assert run.resources.peak_pss_bytes > 100 * 2**20
    assert run.settings["seed"] == 1
    rungs = {rung.name: rung.details for rung in run.rungs}
    assert set(rungs["env"]["patches"].values()) == {"applied"}  # type: ignore[union-attr]
    assert 0 <= rungs["rollout"]["probs_diff_max"] < 1e-6  # type: ignore[operator]
    assert len(set(rungs["reward"]["scores"])) > 1  # type: ignore[arg-type]
    names = {path.name for path in done.folder.iterdir()}
    assert {"run.json", "events.jsonl", "output.log", "precision.json", "report.html"} <= names
    assert ".reserve" not in names
    kinds = [event["kind"] for event in events.read(done.folder / "events.jsonl")]
    assert kinds.count("rung_passed") == 5
    assert "activated" in kinds


# Rung where it must be found, words, plug-in, what the error says.
PLANTED = [
    pytest.param("forward", [f"{RATE}=0.0"], None, "changed no weight", id="learning rate 0"),
    pytest.param("forward", [], "flipped_sign", "policy loss is", id="flipped sign"),
    pytest.param("forward", [], "wrong_mask", "loss is", id="wrong mask"),
    pytest.param("forward", [], "nan_loss", "loss is nan", id="NaN in the loss"),
    pytest.param("rollout", [f"{COMPUTE}=bf16"], None, "token's probability", id="bf16 autocast"),
    pytest.param("rollout", [], "deaf_rollout", "token's probability", id="weights that never arrive"),
]


@pytest.mark.parametrize(("rung", "words", "plugin", "said"), PLANTED)
def test_a_planted_fault_is_found_at_the_lowest_rung(
    warm_climb: Climb, rung: str, words: list[str], plugin: str | None, said: str
) -> None:
    """Found in Ray, each of these costs an hour: the trainer ends with exit code 0."""
    done = warm_climb("--from", "forward", "--to", "reward", *words, plugin=plugin)
    assert done.exit_code == 20, done.stdout
    assert done.failed_rung == rung
    assert said in done.problems
    assert done.run.failure.failure_class == "model-logic"
    assert (done.run.failure.signature == "not-finite") is (plugin == "nan_loss")


REWARDS = [
    ("raises", ["ZeroDivisionError: planted in the reward", "bad_rewards.py:13"]),
    ("a_string", ["returned '0.5'", "bad_rewards.py:a_string"]),
    ("not_a_number", ["returned nan"]),
    ("another_each_time", ["scores the same responses differently"]),
    ("of_many_lines", ["bad_rewards.py:33", "ValueError: première ligne\\x1b[31m / RuntimeError: not me"]),
    ("from_another", ["bad_rewards.py:48", "RuntimeError: could not reach the judge (from KeyError"]),
    ("interrupts", ["bad_rewards.py:52", "scoring raised KeyboardInterrupt"]),
    ("leaves", ["sys.exit(0)", "bad_rewards.py:37"]),
    ("leaves_at_once", ["os._exit(0)", "bad_rewards.py:41"]),
]


LOADS = [
    ("import not_there_pkg\n", "cannot be loaded: ModuleNotFoundError", "environment"),
    ("raise ValueError('at load')\n", "cannot be loaded: ValueError: at load", "model-logic"),
    ("import sys\nsys.exit(0)\n", "ends its process while it is loaded: SystemExit: 0", "model-logic"),
]


@pytest.mark.parametrize(("head", "said", "kind"), LOADS)
def test_a_reward_file_that_cannot_be_loaded_is_told_as_that(
    warm_climb: Climb, tmp_path: Path, head: str, said: str, kind: str
) -> None:
    (tmp_path / "mine.py").write_text(head + "def score(**row): return 1.0\n")
    done = warm_climb("--from", "reward", "--to", "reward", "--reward", f"{tmp_path}/mine.py:score")
    assert done.exit_code == 20, done.stdout
    assert said in done.problems
    assert done.run.failure.failure_class == kind


@pytest.mark.parametrize(("function", "said"), REWARDS)
def test_a_reward_that_cannot_be_used(warm_climb: Climb, function: str, said: list[str]) -> None:
    """In the trainer it is an error in a reward worker, or a NaN some steps later."""
    reward = f"{FAULTS / 'bad_rewards.py'}:{function}"
    done = warm_climb("--from", "reward", "--to", "reward", "--reward", reward)
    assert done.exit_code == 20, done.stdout
    assert done.failed_rung == "reward"
    assert all(text in done.problems for text in said), done.problems
    assert (done.run.failure.failure_class, done.run.failure.signature) == ("model-logic", "reward-function")
