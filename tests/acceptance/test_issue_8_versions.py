"""Issue 8, more than one verl: the ladder passes with each release that has a lock, and each patch is needed.

The matrix is climbed anew and kept with the results; without a patch for older releases the rung that it is
about fails, for the reason that the patch names.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.adapt import names
from harness.fingerprint import lock
from harness.profiles import load, releases

pytestmark = pytest.mark.acceptance
ROOT = Path(__file__).parents[2]
OLDER = ("0.8.0", "0.7.1")
Record = Callable[[str, object], None]


def verlock(folder: Path, *words: str | Path) -> tuple[int, dict[str, Any]]:
    """Exit code and the one JSON document."""
    command = [sys.executable, "-P", "-m", "harness", *map(str, words)]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, json.loads(done.stdout)


def test_the_ladder_passes_with_every_release(tmp_path: Path, record_property: Record) -> None:
    code, matrix = verlock(tmp_path, "compat", "--no-write", "--json")
    assert [row["verl"] for row in matrix["rows"]] == ["0.9.1", *OLDER]
    for row in matrix["rows"]:
        record_property(row["verl"], {name: cell["told"] for name, cell in row["cells"].items()})
        assert {cell["verdict"] for cell in row["cells"].values()} == {"passed"}, row
        wanted = lock.named(load(releases.named("cpu", row["verl"])))
        assert (row["lock"], row["sha256"]) == (wanted["file"], wanted["sha256"])
    assert code == 0


@pytest.mark.parametrize("verl", OLDER)
def test_the_record_names_the_release_and_its_lock(tmp_path: Path, verl: str) -> None:
    words = ["climb", "--verl", verl, "--to", "env", "--json", "--runs", tmp_path / "runs"]
    code, document = verlock(tmp_path, *words)
    assert code == 0, document
    record = json.loads((tmp_path / "runs" / document["id"] / "run.json").read_text())
    assert record["profile"] == f"cpu@{verl}"
    assert record["lock"] == lock.named(load(f"cpu@{verl}"))
    assert record["versions"]["verl"] == verl


NEEDED = [
    ("0.8.0", names.WHOLE_WEIGHTS, "rollout", "a token's probability differs"),
    ("0.8.0", names.PADDING_FUNCTIONS, "forward", "flash_attn"),
    ("0.8.0", names.CPU_DEVICE, "forward", "memory"),
    ("0.7.1", names.PADDED_MASK, "rollout", "a token's probability differs"),
    ("0.7.1", names.ENGINE_AUTOCAST, "rollout", "a token's probability differs"),
]


@pytest.mark.parametrize(("verl", "patch", "rung", "said"), NEEDED)
def test_a_release_fails_without_its_patch(
    tmp_path: Path, verl: str, patch: str, rung: str, said: str, record_property: Record
) -> None:
    words = ["climb", "--verl", verl, "--to", "rollout", "--json", "--runs", tmp_path / "runs"]
    code, document = verlock(tmp_path, *words, "--without-patch", patch)
    assert code != 0, f"patch {patch} is not needed for verl {verl}"
    record = json.loads(next((tmp_path / "runs").glob("*/run.json")).read_text())
    failed = next(one["name"] for one in record["rungs"] if one["status"] == "failed")
    assert failed == rung
    text = json.dumps(document["error"])
    assert said in text
    record_property("said", document["error"]["problems"][0]["what"])


@pytest.mark.parametrize("verl", OLDER)
def test_a_key_of_the_newest_release_is_refused_with_what_to_write(tmp_path: Path, verl: str) -> None:
    words = ["climb", "--verl", verl, "--json", "--runs", tmp_path / "runs"]
    code, document = verlock(tmp_path, *words, "trainer.use_v1=True", "actor_rollout_ref.rollout.seed=3")
    assert code == 21
    told = {problem["where"]: problem["todo"] for problem in document["error"]["problems"]}
    assert told["trainer.use_v1"].startswith("leave it out")
    assert "engine_kwargs.hf.seed" in told["actor_rollout_ref.rollout.seed"]
    assert not (tmp_path / "runs").exists(), "nothing was started"


def test_a_users_command_is_judged_and_run_with_an_older_release(
    tmp_path: Path, record_property: Record
) -> None:
    from harness.data import gsm8k

    gsm8k.write(tmp_path / "train.parquet", gsm8k.make(64, seed=1))
    actor, rollout = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
    given = [
        "data.train_files=train.parquet",
        "data.val_files=train.parquet",
        "data.train_batch_size=32",
        "algorithm.adv_estimator=grpo",
        "actor_rollout_ref.model.path=Qwen/Qwen3-8B",
        f"{rollout}.name=vllm",
        f"{rollout}.n=8",
        f"{rollout}.log_prob_micro_batch_size_per_gpu=4",
        f"{actor}.ppo_mini_batch_size=16",
        f"{actor}.ppo_micro_batch_size_per_gpu=2",
        "reward.custom_reward_function.path=reward.py",
        "reward.custom_reward_function.name=score",
        "trainer.logger=[console]",
    ]
    reward = "def score(data_source, solution_str, ground_truth, extra_info=None):\n"
    (tmp_path / "reward.py").write_text(reward + "    return len(set(solution_str)) / 100\n")
    command = ["python3", "-m", "verl.trainer.main_ppo", *given]
    words = ["preflight", "--verl", "0.8.0", "--json", "--from", "ppo", "--runs", tmp_path / "runs", "--"]
    code, document = verlock(tmp_path, *words, *command, "trainer.use_v1=True")
    assert code == 37, "the key of another release is a fault"
    assert [finding["key"] for finding in document["findings"]] == ["trainer.use_v1"]
    code, document = verlock(tmp_path, *words, *command)
    assert code == 0, document
    assert document["findings"] == []
    record_property("line", document["run"]["rungs"][-1]["verified"])
