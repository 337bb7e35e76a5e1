"""Issue 7, ``checkpoint`` and ``ppo-2ranks``: they pass, and each planted fault makes them fail."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.evidence import events
from harness.evidence.model import Run, load
from harness.ladder.ranks import TOLERANCE

pytestmark = pytest.mark.acceptance
ROOT = Path(__file__).parents[2]
SECONDS = 900


def climb(runs: Path, *words: str, **variables: str) -> tuple[int, str, Run]:
    """As a user types it; with a test's plug-in where a variable names one."""
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests" / "faults")])
    done = subprocess.run(
        [sys.executable, "-P", "-m", "harness", "climb", "--runs", str(runs), *words],
        env={**os.environ, "PYTHONPATH": path, **variables},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    said = done.stdout + done.stderr
    assert "Traceback" not in said, said
    return done.returncode, said, load(runs / "latest")


CHECKPOINT = ("--from", "checkpoint", "--to", "checkpoint")


@pytest.mark.parametrize("trainer", ["v0", "v1"])
@pytest.mark.parametrize("algorithm", ["ppo", "grpo"])
def test_save_kill_resume_is_bit_identical(
    tmp_path: Path, trainer: str, algorithm: str, record_property: Callable[[str, object], None]
) -> None:
    code, said, run = climb(tmp_path, *CHECKPOINT, "--trainer", trainer, "--algorithm", algorithm)
    assert code == 0, said
    (rung,) = run.rungs
    assert "step 3 to 4 bit-identical" in str(rung.verified)
    seen = events.read(tmp_path / "latest" / "events.jsonl")
    (killed,) = [event for event in seen if event["kind"] == "trainer_killed"]
    assert killed["step"] == 2
    assert killed["processes"] >= 5
    record_property("line", rung.verified)
    assert not (tmp_path / "latest" / "checkpoint" / "saved").exists()


FORGOTTEN = [("optimizer", "step 3"), ("model", "step 3"), ("rows", "step 3"), ("seed", "step 3")]


@pytest.mark.parametrize(("what", "said"), FORGOTTEN)
def test_a_resume_that_forgets_is_found(tmp_path: Path, what: str, said: str) -> None:
    """Each of these goes on training, with finite losses and no error."""
    code, told, run = climb(
        tmp_path, *CHECKPOINT, VERL_USE_EXTERNAL_MODULES="forgetful", VERLOCK_TEST_FORGET=what
    )
    assert code == 20, told
    assert run.failure is not None
    assert said in run.failure.cause


def test_mocked_checkpoints_say_so(tmp_path: Path) -> None:
    code, said, run = climb(tmp_path, *CHECKPOINT, "--checkpoint", "mock")
    assert code == 0, said
    assert "MOCKED" in str(run.rungs[0].verified)
    assert int(run.rungs[0].details["bytes"]) < 200_000  # type: ignore[arg-type]


def test_a_damaged_checkpoint_is_told_before_anything_is_started(tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    ppo = ("--from", "ppo", "--to", "ppo", "--steps", "2", f"trainer.default_local_dir={saved}")
    code, said, _run = climb(tmp_path / "one", *ppo, "trainer.save_freq=2")
    assert code == 0, said
    path = saved / "global_step_2" / "critic" / "optim_world_size_1_rank_0.pt"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    code, said, run = climb(tmp_path / "two", *ppo, "trainer.resume_mode=auto")
    assert code == 15, said
    assert str(path) in said
    assert run.failure is not None
    assert run.failure.failure_class == "data"
    seen = events.read(tmp_path / "two" / "latest" / "events.jsonl")
    assert not [event for event in seen if event["kind"] == "trainer_started"]


RANKS = ("--from", "ppo-2ranks", "--to", "ppo-2ranks")


@pytest.mark.parametrize("algorithm", ["ppo", "grpo"])
def test_two_ranks_compute_what_one_does(
    tmp_path: Path, algorithm: str, record_property: Callable[[str, object], None]
) -> None:
    code, said, run = climb(tmp_path, *RANKS, "--algorithm", algorithm)
    assert code == 0, said
    (rung,) = run.rungs
    held = rung.details["held"]
    assert isinstance(held, dict)
    for role, ranks in held.items():
        assert [rank["elements"] * 2 for rank in ranks] == pytest.approx([ranks[0]["total"]] * 2, rel=0.1), (
            role
        )
    record_property("agreement", rung.details["agreement"])
    worst = max(abs(a - b) / max(abs(a), abs(b), 1e-2) for a, b in rung.details["agreement"].values())  # type: ignore[union-attr,misc]
    assert worst < TOLERANCE
    assert len([p for p in run.resources.processes if "WorkerDict" in p.title]) >= 3, "two ranks and one"


def test_a_rank_that_does_not_shard_is_found(tmp_path: Path) -> None:
    """``fsdp_size=1``: each rank keeps a copy. The numbers are right, and a large model would not fit."""
    code, said, run = climb(tmp_path, *RANKS, "actor_rollout_ref.actor.fsdp_config.fsdp_size=1")
    assert code == 20, said
    assert run.failure is not None
    assert "rank 0 holds" in run.failure.cause


def test_gradients_that_are_summed_and_not_averaged_are_found(tmp_path: Path) -> None:
    """What torch 2.7's reduce_scatter over gloo does without a word (the patch gloo-avg)."""
    code, said, run = climb(tmp_path, *RANKS, VERL_USE_EXTERNAL_MODULES="summed")
    assert code == 20, said
    assert run.failure is not None
    assert "actor/grad_norm" in run.failure.cause


def test_the_whole_ladder_in_one_climb(tmp_path: Path) -> None:
    code, said, run = climb(tmp_path, "--full")
    assert code == 0, said
    assert len(run.rungs) == 9
    assert json.loads((tmp_path / "latest" / "run.json").read_text())["status"] == "passed"
    seen = events.read(tmp_path / "latest" / "events.jsonl")
    # The uninterrupted run is the ppo rung's: mock, ppo, killed, resumed, two ranks, one rank.
    assert len([event for event in seen if event["kind"] == "trainer_started"]) == 6
