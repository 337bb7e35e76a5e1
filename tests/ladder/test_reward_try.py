"""`verlock reward try`: verl's own managers call the function, and each planted fault is named."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

if importlib.util.find_spec("verl") is None:
    pytest.skip("verl comes with the lock", allow_module_level=True)

from harness.data import tiny_task
from harness.errors import OverrideError, RungFailedError
from harness.ladder.reward_calls import Call, distribution, evaluate
from harness.ladder.reward_try import Trial, _Lines, run

ODD = Path(__file__).parents[1] / "faults" / "odd_rewards.py"
OURS = Path(__file__).parents[2] / "harness" / "data" / "rewards.py"


def trial(reward: str, tmp_path: Path, **changed: object) -> Trial:
    train, _ = tiny_task.write(tmp_path, rows=4, seed=1)
    given = {"reward": reward, "data": train, "rows": 1, "manager": "naive", "model": "tiny", "seconds": 2.0}
    return Trial(**(given | changed))  # type: ignore[arg-type]


def test_every_planted_fault_is_found_with_verls_own_naive_manager(tmp_path: Path) -> None:
    said: list[str] = []
    calls = run(trial(f"{ODD}:odd", tmp_path), said.append)
    found = {finding.id: finding for finding in evaluate(calls, reward="odd", manager="naive")}
    assert set(found) == {
        "reward-ends",
        "reward-raises",
        "reward-type",
        "reward-random",
        "reward-keys",
        "reward-upside-down",
    }
    assert "ValueError" in found["reward-raises"].what
    assert f"{ODD}:16" in found["reward-raises"].what
    ends = {call.kind: call.ended for call in calls if call.ended}
    assert ends == {"adversarial: long run": "did not end within 4 s"}
    assert sum("going on after it" in line for line in said) == 1
    assert len(calls) == 11, "the responses after the one that hung were tried too"


def test_a_process_that_ends_in_a_call_is_told_from_one_that_hangs() -> None:
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb", buffering=0) as pipe:
        lines = _Lines(pipe)
        os.write(writer, b'{"begin": 0}\n{"en')
        assert lines.next(5.0) == {"begin": 0}
        assert lines.next(0.01) == "did not end within 0.01 s"
        os.close(writer)
        assert lines.next(5.0) == "ended its process"


def test_a_good_function_with_the_batch_manager_which_the_trainer_no_longer_knows(tmp_path: Path) -> None:
    calls = run(trial(f"{ODD}:batch", tmp_path, manager="batch"), lambda text: None)
    spread = distribution(calls)
    assert (spread["truth"]["min"], spread["empty"]["max"]) == (1.0, 0.0)
    found = evaluate(calls, reward="batch", manager="batch")
    assert [(f.id, f.level) for f in found] == [("reward-manager-gone", "warning")]


def test_a_function_that_is_not_in_its_file(tmp_path: Path) -> None:
    with pytest.raises(RungFailedError, match=r"cannot load .*object_name='gone'"):
        run(trial(f"{OURS}:gone", tmp_path), lambda text: None)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(OverrideError, match="no such file"):
        run(trial("gone.py:f", tmp_path), lambda text: None)


def scored(kind: str, *scores: float, shown: tuple[str, ...] = (), **more: object) -> Call:
    shown = shown or tuple(map(repr, scores))
    return Call(kind=kind, row=0, response="x", scores=scores, shown=shown, keys=("acc",), **more)  # type: ignore[arg-type]


# The calls, and the ids of what is found in them.
JUDGED = [
    ([scored("truth", 1.0, 1.0), scored("empty", 0.0, 0.0)], []),
    ([scored("truth", 1.0, 1.0), scored("empty", 1.0, 1.0)], ["reward-flat"]),
    ([scored("truth", 0.0, 0.0), scored("empty", 1.0, 1.0)], ["reward-upside-down"]),
    ([scored("truth", 1.0, 1.0), scored("empty", 0.5, 0.25)], ["reward-random"]),
    ([scored("truth", 1.0, 1.0), scored("empty", float("nan"), float("nan"))], ["reward-type"]),
    ([scored("truth", 1.0, 1.0), scored("empty", 0.0, 0.0, seconds=2.0)], ["reward-slow"]),
]


@pytest.mark.parametrize(("calls", "ids"), JUDGED)
def test_what_calls_mean(calls: list[Call], ids: list[str]) -> None:
    assert [finding.id for finding in evaluate(calls, reward="f", manager="naive")] == ids
