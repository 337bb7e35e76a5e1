"""Issue 7, ``localise``: ten planted faults, each behind another boundary, found by real runs."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from jsonschema import Draft202012Validator

from harness.build import documents
from harness.data import tiny_model, tiny_task
from harness.evidence.model import Run, load

pytestmark = pytest.mark.acceptance

ROOT = Path(__file__).parents[2]
FAULTS = ROOT / "tests" / "faults"
Record = Callable[[str, object], None]
# Overrides that do no harm: with them there is something to choose from.
HARMLESS = ["actor_rollout_ref.rollout.temperature=0.9", "trainer.nnodes=1"]
FLASH = "+actor_rollout_ref.model.override_config.attn_implementation=flash_attention_2"
HALF = "+actor_rollout_ref.actor.fsdp_config.mixed_precision.param_dtype=bf16"


@dataclass(frozen=True, kw_only=True)
class Planted:
    """``words`` climb from ``first`` to ``last`` and fail; ``boundary`` is part of the answer."""

    first: str
    last: str
    boundary: str
    words: Sequence[str] = ()
    plugin: str | None = None
    environ: dict[str, str] = field(default_factory=dict)
    make: Callable[[Path], list[str]] = lambda _folder: []


def model_with_nan(folder: Path) -> list[str]:
    from transformers import AutoModelForCausalLM

    place = tiny_model.write(folder / "model", 1)
    model = AutoModelForCausalLM.from_pretrained(place)
    model.lm_head.weight.data[5, 5] = math.nan
    model.save_pretrained(place)
    return ["--model", str(place)]


def rows_without_roles(folder: Path) -> list[str]:
    train, _ = tiny_task.write(folder / "rows", rows=32, seed=1)
    rows = pq.read_table(train).to_pylist()
    for row in rows:
        row["prompt"] = [{"text": message["content"]} for message in row["prompt"]]
    pq.write_table(pa.Table.from_pylist(rows), train)
    return ["--data", str(train)]


BELOW_RAY = {
    "reward": Planted(
        first="forward",
        last="reward",
        boundary="reward",
        words=["--reward", f"{FAULTS}/bad_rewards.py:raises", *HARMLESS],
    ),
    "attention": Planted(first="forward", last="reward", boundary="attention", words=[FLASH, *HARMLESS]),
    "dtype": Planted(first="forward", last="rollout", boundary="dtype", words=[*HARMLESS, HALF]),
    "one override": Planted(
        first="forward",
        last="reward",
        boundary="config actor_rollout_ref.actor.optim.lr",
        words=[HARMLESS[0], "actor_rollout_ref.actor.optim.lr=0.0", HARMLESS[1]],
    ),
    "model": Planted(first="forward", last="reward", boundary="model", words=HARMLESS, make=model_with_nan),
    "data": Planted(first="data", last="data", boundary="data", words=HARMLESS, make=rows_without_roles),
}
WITH_RAY = {
    "Ray": Planted(first="ppo-mock", last="ppo-mock", boundary="ray", words=HARMLESS, plugin="only_in_ray"),
    "rollout": Planted(first="ppo", last="ppo", boundary="rollout", words=HARMLESS, plugin="deaf_rollout"),
    "checkpoint": Planted(
        first="checkpoint",
        last="checkpoint",
        boundary="checkpoint",
        plugin="forgetful",
        environ={"VERLOCK_TEST_FORGET": "optimizer"},
    ),
    "ranks": Planted(first="ppo-2ranks", last="ppo-2ranks", boundary="ranks", plugin="summed"),
}


def environment(planted: Planted) -> dict[str, str]:
    variables = {**os.environ, **planted.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(FAULTS)])}
    variables.pop("VERL_USE_EXTERNAL_MODULES", None)
    return variables | ({"VERL_USE_EXTERNAL_MODULES": planted.plugin} if planted.plugin else {})


def verlock(planted: Planted, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """From the planted fault's own environment: it is there in each run that localise makes."""
    command = [sys.executable, "-P", "-m", "harness", *map(str, words)]
    done = subprocess.run(
        command, env=environment(planted), cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done


def failing(planted: Planted, folder: Path) -> Run:
    options = [word for word in planted.words if "=" not in word]
    overrides = [word for word in planted.words if "=" in word]
    span = ["--from", planted.first, "--to", planted.last]
    words = [*span, *options, *planted.make(folder), "--", *overrides]
    verlock(planted, "climb", "--json", "--runs", folder / "runs", *words)
    run = load((folder / "runs" / "latest").resolve())
    assert run.failure is not None, "the planted fault does not show"
    return run


@pytest.mark.parametrize("name", [*BELOW_RAY, *WITH_RAY])
def test_the_boundary_is_named(tmp_path: Path, record_property: Record, name: str) -> None:
    """With two runs as evidence that differ in it alone, and no more runs than a binary search needs."""
    planted = (BELOW_RAY | WITH_RAY)[name]
    run = failing(planted, tmp_path)
    runs = tmp_path / "runs"
    done = verlock(planted, "localise", "--json", "--runs", runs, runs / run.id)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    Draft202012Validator(json.loads(documents.path("localise").read_text())).validate(found)
    record_property("boundaries", found["of"])
    record_property("runs", len(found["runs"]))
    assert found["boundary"] == planted.boundary, (found, done.stderr)
    assert len(found["of"]) >= 3
    assert len(found["runs"]) <= math.log2(len(found["of"])) + 2
    assert load(Path(found["failing"])).status == "failed"
    assert load(Path(found["passing"])).failure != run.failure
