"""Issue 7: planted faults, each told right by a real run at the lowest rung that shows it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest

from harness.data import tiny_model, tiny_task
from harness.evidence.model import Run, load

pytestmark = pytest.mark.acceptance

ROOT = Path(__file__).parents[2]
FAULTS = ROOT / "tests" / "faults"
QUEUE = "transfer_queue.backend.SimpleStorage.num_data_storage_units=8"
FLASH = "+actor_rollout_ref.model.override_config.attn_implementation=flash_attention_2"


def command(runs: Path, *words: str | Path, name: str = "climb") -> list[str]:
    return [sys.executable, "-P", "-m", "harness", name, "--json", "--runs", str(runs), *map(str, words)]


def environment(plugin: str | None = None) -> dict[str, str]:
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(FAULTS)])}
    variables.pop("VERL_USE_EXTERNAL_MODULES", None)
    return variables | ({"VERL_USE_EXTERNAL_MODULES": plugin} if plugin else {})


def climb(runs: Path, *words: str | Path, plugin: str | None = None) -> tuple[int, dict[str, Any]]:
    done = subprocess.run(
        command(runs, *words), env=environment(plugin), cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, json.loads(done.stdout)


def newest(runs: Path) -> Run:
    return load((runs / "latest").resolve())


def said(document: dict[str, Any]) -> str:
    return json.dumps(document["error"]["problems"])


# Rung, words, plug-in, exit code, class, what is said.
FAULTY = [
    pytest.param("reward", ["trainer.nnode=1"], None, 21, "config", "trainer.nnodes", id="wrong Hydra key"),
    pytest.param("forward", [], "nan_loss", 20, "model-logic", "nan", id="NaN in the loss"),
    pytest.param("forward", [FLASH], None, 20, "backend", "FlashAttention", id="attention kernel missing"),
    pytest.param("ppo-mock", ["data.train_batch_size=3"], None, 22, "config", "", id="indivisible batch"),
]


@pytest.mark.parametrize(("rung", "words", "plugin", "code", "kind", "text"), FAULTY)
def test_a_planted_fault_is_told_right(
    tmp_path: Path, rung: str, words: list[str], plugin: str | None, code: int, kind: str, text: str
) -> None:
    exit_code, document = climb(tmp_path / "runs", "--from", rung, "--to", rung, *words, plugin=plugin)
    assert exit_code == code, document
    assert document["error"]["class"] == kind, document
    assert text in said(document)


def test_a_key_error_in_the_reward_function_is_told_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "judge.py"
    file.write_text("def score(solution_str, **rest):\n    return {'good': 1.0}['bad']\n")
    code, document = climb(
        tmp_path / "runs", "--from", "reward", "--to", "reward", "--reward", f"{file}:score"
    )
    failure = newest(tmp_path / "runs").failure
    assert code == 20
    assert failure is not None
    assert (failure.failure_class, failure.signature) == ("model-logic", "reward-function")
    assert f"{file}:2" in said(document)


def test_a_prompt_longer_than_the_limit_is_told(tmp_path: Path) -> None:
    train, _ = tiny_task.write(tmp_path / "rows", rows=32, seed=1)
    table = pq.read_table(train).to_pylist()
    for row in table:
        row["prompt"][-1]["content"] *= 200
    import pyarrow as pa

    pq.write_table(pa.Table.from_pylist(table), train)
    words = ["--from", "data", "--to", "data", "--data", train, "data.max_prompt_length=64"]
    code, document = climb(tmp_path / "runs", *words)
    assert (code, document["error"]["class"]) == (14, "data")
    assert "max_prompt_length" in said(document)


def test_a_tokenizer_without_a_chat_template_is_told(tmp_path: Path) -> None:
    folder = tiny_model.write(tmp_path / "model", 1)
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    path = folder / "tokenizer_config.json"
    settings = json.loads(path.read_text())
    settings.pop("chat_template", None)
    path.write_text(json.dumps(settings))
    code, document = climb(tmp_path / "runs", "--from", "data", "--to", "data", "--model", folder)
    assert code in {14, 15}, document
    assert document["error"]["class"] == "data"
    assert "chat template" in said(document).replace("chat_template", "chat template")


@pytest.mark.parametrize("function", ["waits", "swallows"])
def test_a_hang_in_the_reward_function_ends_at_the_deadline(tmp_path: Path, function: str) -> None:
    """In its own process; ``swallows`` catches every exception and still does not hold up the end."""
    reward = f"{FAULTS / 'hanging_rewards.py'}:{function}"
    words = ["--from", "reward", "--to", "reward", "--reward", reward, "--deadline", "90"]
    began = time.monotonic()
    code, document = climb(tmp_path / "runs", *words)
    assert code == 38, document
    assert time.monotonic() - began < 90 + 90, "the deadline, and time to look around"
    assert "hanging_rewards.py" in said(document)
    run = newest(tmp_path / "runs")
    assert (run.status, run.exit_code) == ("failed", 38)
    assert "hanging_rewards" in (tmp_path / "runs" / "latest" / "stacks.txt").read_text()


def test_a_hang_in_a_reward_worker_of_the_trainer_names_its_line(tmp_path: Path) -> None:
    reward = f"{FAULTS / 'hanging_rewards.py'}:waits"
    code, document = climb(tmp_path / "runs", "--from", "ppo", "--reward", reward, "--silence", "90")
    assert code == 38, document
    assert "hanging_rewards.py" in said(document), said(document)
    assert "pending" not in said(document)


def test_ray_out_of_resources_is_told_from_a_hang(tmp_path: Path) -> None:
    """verl's default of 8 storage units, on as many CPUs as Ray is told: it waits without a word."""
    words = ["--from", "ppo-mock", "--to", "ppo-mock", "--silence", "90", QUEUE]
    code, document = climb(tmp_path / "runs", *words, "ray_kwargs.ray_init.num_cpus=4")
    assert code == 38, document
    assert "pending for want of resources" in said(document), said(document)
    failure = newest(tmp_path / "runs").failure
    assert failure is not None
    assert failure.failure_class == "distributed"
    assert failure.signature in {"transfer-queue-waits-for-cpus", "ray-cannot-schedule"}


def test_a_killed_worker_is_told(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    started = subprocess.Popen(
        command(runs, "--from", "ppo-mock", "--to", "ppo-mock", "--steps", "400"),
        env=environment(),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    worker = None
    while worker is None and started.poll() is None:
        time.sleep(0.5)
        worker = next((p for p in _ours(runs) if "WorkerDict" in "".join(p.cmdline())), None)
    assert worker is not None
    worker.send_signal(signal.SIGKILL)
    out, _ = started.communicate(timeout=600)
    assert started.returncode == 22, out
    failure = newest(runs).failure
    assert failure is not None
    assert (failure.failure_class, failure.signature) == ("resource", "host-memory")


def _ours(runs: Path) -> list[psutil.Process]:
    found = []
    wanted = {path.parent.name for path in runs.glob("*/run.json")}
    for process in psutil.process_iter():
        try:
            if process.environ().get("VERLOCK_RUN_ID") in wanted:
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return found
