"""One run of verl's own trainer, and everything that its record must show."""

from __future__ import annotations

import importlib.util
import json
import math
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

if importlib.util.find_spec("verl") is None:
    pytest.skip("verl comes with the lock", allow_module_level=True)

from harness.adapt import names
from harness.adapt.patches import PATCHES
from harness.adapt.settings import Settings
from harness.evidence import events, metrics
from harness.ladder import activation
from harness.ladder.checks import PROBS_DIFF

STEPS = 4


@pytest.fixture(scope="session")
def ended(session_climb: Callable[..., Any]) -> tuple[Any, list[str]]:
    # A temp folder of its own, to see what is left in it; short, because Ray's sockets lie below it.
    with tempfile.TemporaryDirectory(prefix="t") as temporary:
        done = session_climb("--from", "ppo", "--steps", str(STEPS), TMPDIR=temporary)
        left = [path.name for path in Path(temporary).iterdir()]
    assert done.exit_code == 0, done.stdout
    return done, left


@pytest.fixture(scope="session")
def trained(ended: tuple[Any, list[str]]) -> Any:
    return ended[0]


@pytest.fixture(scope="session")
def steps(trained: Any) -> list[metrics.Step]:
    return metrics.read(trained.folder / "metrics.jsonl")


@pytest.fixture(scope="session")
def happened(trained: Any) -> list[dict[str, Any]]:
    return events.read(trained.folder / "events.jsonl")


def values(steps: list[metrics.Step], key: str) -> list[float]:
    """One number for each step."""
    found = [value for _, value in metrics.column(steps, key)]
    assert len(found) == STEPS, f"{key} was logged {len(found)} times"
    return found


def test_the_record_says_what_was_verified(trained: Any) -> None:
    run = trained.run
    assert (run.status, run.exit_code, run.failure) == ("passed", 0, None)
    (rung,) = run.rungs
    assert (rung.name, rung.status) == ("ppo", "passed")
    assert "main_ppo" in rung.verified
    assert len(rung.details["seconds_per_step"]) == STEPS
    assert rung.details["command"][1:3] == ["-m", "verl.trainer.main_ppo"]
    assert run.resources.peak_pss_bytes > 2**30
    assert trained.document["id"] == run.id


def test_fp32_is_fp32(steps: list[metrics.Step]) -> None:
    """The must of the issue: below 1e-6 at every step, where bf16 autocast gives 1.2e-4; and not all zero."""
    found = values(steps, PROBS_DIFF)
    assert all(value < 1e-6 for value in found), found
    assert any(value > 0 for value in found), "nothing was compared"


@pytest.mark.parametrize("key", ["actor/grad_norm", "critic/grad_norm"])
def test_gradients_flow(steps: list[metrics.Step], key: str) -> None:
    assert all(math.isfinite(value) and value > 0 for value in values(steps, key))


def test_rewards_are_not_constant(steps: list[metrics.Step]) -> None:
    low, high = values(steps, "critic/score/min"), values(steps, "critic/score/max")
    assert all(a < b for a, b in zip(low, high, strict=True))


@pytest.mark.parametrize("key", ["actor/pg_loss", "actor/kl_loss", "actor/entropy", "critic/vf_loss"])
def test_losses_are_numbers_that_change(steps: list[metrics.Step], key: str) -> None:
    found = values(steps, key)
    assert all(map(math.isfinite, found))
    assert len(set(found)) > 1


def test_the_weights_travel_and_change_at_each_step(trained: Any, happened: list[dict[str, Any]]) -> None:
    """One update before the first step, one after each; equal digests: an optimiser without effect."""
    digests = [event["digest"] for event in happened if event["kind"] == "weights"]
    assert len(digests) >= STEPS + 1
    assert len(set(digests)) == len(digests)
    assert trained.run.rungs[0].details["weight_digests"] == digests


def test_the_composed_configuration_is_kept(trained: Any) -> None:
    config = yaml.safe_load((trained.folder / "config.yaml").read_text())
    assert config["trainer"]["total_training_steps"] == STEPS
    assert config["actor_rollout_ref"]["actor"]["strategy"] == "fsdp2"
    for part in (config["actor_rollout_ref"]["actor"]["fsdp_config"], config["critic"]["fsdp"]):
        assert part["mixed_precision"]["param_dtype"] == "fp32"
    assert config["critic"]["enable"] is not False


def test_verls_own_loggers_wrote_the_metrics(trained: Any, steps: list[metrics.Step]) -> None:
    assert [step.step for step in steps] == [1, 2, 3, 4]
    (board,) = (trained.folder / "tensorboard").rglob("events.out.tfevents.*")
    content = board.read_bytes()
    assert b"actor/pg_loss" in content
    assert b"training/rollout_probs_diff_max" in content


def test_every_process_that_ran_verl_proved_the_plugin(trained: Any, happened: list[dict[str, Any]]) -> None:
    processes = trained.run.resources.processes
    titles = Counter(process.title for process in processes if activation.runs_verl(process.title))
    for role in ("WorkerDict", "RolloutServer", "main_ppo"):
        assert any(role in title for title in titles), titles
    assert activation.unproven(processes, happened) == []


@pytest.mark.parametrize("name", names.PATCH_NAMES)
def test_each_patch_acted_where_it_should(trained: Any, name: str) -> None:
    """Applied and never called is a patch beside the code that runs; another version's is absent."""
    patches = json.loads((trained.folder / "precision.json").read_text())["patches"]
    needed = {patch.name for patch in PATCHES if patch.needed(Settings(device="cpu"))}
    assert (name in patches) is (name in needed)
    if name not in needed:
        return
    patch = patches[name]
    assert set(patch["outcomes"]) == {"applied"}, f"patch {name}"
    workers = [place for place in patch["acted"] if "WorkerDict" in place["role"]]
    assert workers, f"patch {name} acted in no training worker: {patch['acted']}"
    assert all("/verl/" in place["where"] for place in workers), f"patch {name}"


def test_nothing_is_left_in_the_temp_folder(ended: tuple[Any, list[str]]) -> None:
    """Ray's session folder holds hundreds of megabytes after a few runs."""
    # torch's own cache, one for all runs of a user.
    assert [name for name in ended[1] if not name.startswith("torchinductor_")] == []


def test_no_process_is_left(trained: Any) -> None:
    left = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("VERLOCK_RUN_ID") == trained.run.id:
                left.append(process.cmdline())
        except (psutil.Error, OSError):
            continue
    assert left == []


def test_the_folder_holds_the_designs_files(trained: Any) -> None:
    there = {path.name for path in trained.folder.iterdir()}
    wanted = {"run.json", "config.yaml", "output.log", "events.jsonl", "metrics.jsonl", "precision.json"}
    assert wanted | {"report.html"} <= there
    assert ".reserve" not in there
    assert "step:4" in (trained.folder / "output.log").read_text(errors="replace")
    assert not any("Traceback" in line for line in trained.stderr.splitlines())
