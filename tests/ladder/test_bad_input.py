"""What a user can get wrong: a clear error with its own exit code, no traceback, nothing half-written."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

if importlib.util.find_spec("verl") is None:
    pytest.skip("verl comes with the lock", allow_module_level=True)

import pyarrow as pa
import pyarrow.parquet as pq

from harness.data import tiny_model, tiny_task

Climb = Callable[..., Any]
REWARDS = Path(__file__).parents[1] / "faults" / "bad_rewards.py"
DATA = ("--from", "data", "--to", "data")

# Words, exit code, what is said. All are refused before anything is written.
WORDS = [
    pytest.param(["--profile", "p40-sm16"], 11, ["p40-sm16", "p40-sm61"], id="unknown profile"),
    pytest.param(["--to", "rolluot"], 21, ["--to rolluot", "rollout"], id="unknown rung"),
    pytest.param(["--to", "x", "--from", "y"], 21, ["--to x", "--from y"], id="two at once"),
    pytest.param(["--from", "ppo", "--to", "env"], 21, ["comes after"], id="wrong order"),
    pytest.param(["--reward", "rulez"], 21, ["--reward rulez"], id="no reward"),
    pytest.param(["--reward", "gone.py:f"], 21, ["no such file"], id="no reward file"),
    pytest.param(
        ["--reward", f"{REWARDS}:raise"], 21, ["has no function raise", "did you mean raises"], id="no such"
    ),
    pytest.param(["--without-patch", "x"], 21, ["names no patch"], id="no patch"),
    pytest.param(["trainer.nnodes"], 21, ["no Hydra override"], id="no value"),
]


@pytest.mark.parametrize(("words", "code", "said"), WORDS)
def test_wrong_words(climb: Climb, words: list[str], code: int, said: list[str]) -> None:
    done = climb(*words)
    assert done.exit_code == code, done.stdout
    assert all(text in done.problems for text in said), done.problems
    assert not done.runs.exists()


def test_two_typos_in_hydra_keys_are_both_named_with_the_nearest(warm_climb: Climb) -> None:
    done = warm_climb("--from", "data", "--to", "forward", "data.train_batch_sise=4", "trainer.nnode=1")
    assert done.exit_code == 21, done.stdout
    assert "did you mean data.train_batch_size?" in done.problems
    assert "did you mean trainer.nnodes?" in done.problems
    assert not done.runs.exists(), "a typo is told before a run begins"


def test_values_of_another_kind_are_told_before_a_run_begins(warm_climb: Climb) -> None:
    """verl fails on them where they are used: with Ray, after the models are loaded."""
    words = ("trainer.nnodes=abc", "data.shuffle=3", "actor_rollout_ref.actor.optim.lr=0")
    done = warm_climb("--from", "data", "--to", "data", *words)
    assert done.exit_code == 21, done.stdout
    assert "trainer.nnodes is 'abc', verl expects a whole number" in done.problems
    assert "data.shuffle is 3, verl expects true or false" in done.problems
    assert "optim.lr" not in done.problems
    assert not done.runs.exists()


def without_prompt(path: Path) -> Path:
    table = pq.read_table(path).drop_columns(["prompt"])
    pq.write_table(table, path)
    return path


def string_prompt(path: Path) -> Path:
    table = pq.read_table(path)
    texts = pa.array([f"{n} + 1 =" for n in range(len(table))])
    pq.write_table(table.set_column(table.schema.get_field_index("prompt"), "prompt", texts), path)
    return path


def truncated(path: Path) -> Path:
    path.write_bytes(path.read_bytes()[:-200])
    return path


ROWS = [
    (without_prompt, "prompt"),
    (string_prompt, "prompt"),
    (truncated, "Parquet"),
]


@pytest.mark.parametrize(("spoil", "said"), ROWS)
def test_rows_that_verl_cannot_read_as_meant(
    warm_climb: Climb, tmp_path: Path, spoil: Callable[[Path], Path], said: str
) -> None:
    """verl itself reads a string prompt without a word, and the question is gone from what the model sees."""
    train, _ = tiny_task.write(tmp_path / "rows", rows=32, seed=1)
    done = warm_climb(*DATA, "--data", spoil(train))
    assert done.exit_code == 14, done.stdout
    assert done.failed_rung == "data"
    assert said in done.problems
    assert done.run.failure.failure_class == "data"


def test_rows_that_are_not_there(warm_climb: Climb, tmp_path: Path) -> None:
    """Told before the first rung, as a slip of the command line."""
    done = warm_climb(*DATA, "--data", tmp_path / "gone.parquet")
    assert done.exit_code == 21, done.stdout
    assert "gone.parquet is not there" in done.stdout


def test_a_model_folder_without_tokenizer(warm_climb: Climb, tmp_path: Path) -> None:
    folder = tiny_model.write(tmp_path / "model", 1)
    for path in folder.glob("tokenizer*"):
        path.unlink()
    done = warm_climb(*DATA, "--model", folder)
    assert done.exit_code == 15, done.stdout
    assert done.failed_rung == "data"
    assert "tokenizer" in done.problems


def test_a_run_folder_that_is_a_file(climb: Climb, tmp_path: Path) -> None:
    file = tmp_path / "runs"
    file.write_text("mine")
    done = climb("--to", "env", runs=file)
    assert done.exit_code == 16, done.stdout
    assert file.read_text() == "mine"


# Root needs no user namespace; an ordinary user does.
WAYS = (["unshare", "-m"], ["unshare", "-Urm"])


def on_disk(size: str, disk: Path) -> tuple[str, ...]:
    """Run what follows with ``disk`` a file system of its own, in a mount namespace that ends with it."""
    mount = f'mount -t tmpfs -o size={size} none "$0" && "$@"; code=$?; ls -A "$0" >&2; exit $code'
    for way in WAYS if sys.platform == "linux" and shutil.which("unshare") else ():
        before = (*way, "sh", "-c", mount, str(disk))
        if subprocess.run([*before, "true"], capture_output=True, check=False).returncode == 0:
            return before
    pytest.skip("this machine lets nobody mount a tmpfs in a namespace of its own")


@pytest.mark.parametrize(
    ("size", "left"), [("64k", False), ("400k", True)], ids=["full at once", "full at the model"]
)
def test_a_disk_that_is_full(climb: Climb, tmp_path: Path, size: str, left: bool) -> None:
    """Full at once: nothing is left. Full later: the record was given its space before, and says so."""
    disk = tmp_path / "disk"
    disk.mkdir()
    before = on_disk(size, disk)
    done = climb("--from", "data", "--to", "data", runs=disk / "runs", before=before)
    assert done.exit_code == 17, done.stdout + done.stderr
    assert ("runs" in done.stderr.splitlines()[-1:]) is left, done.stderr
