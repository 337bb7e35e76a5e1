"""Issue 6, fork server: the same numbers, and nothing left behind, whatever ends the run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from harness.evidence import events
from harness.evidence.processes import Members, name_of

pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.skipif(sys.platform != "linux", reason="forking needs Linux"),
]
SECONDS = 400
# Times, throughputs and memory are no results.
NO_RESULT = ("timing", "perf/")


def start(runs: Path, *words: str) -> subprocess.Popen[str]:
    """A climb of the ppo rung, as a user starts it."""
    command = [sys.executable, "-P", "-m", "harness", "climb", "--from", "ppo", "--runs", str(runs), *words]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )


def results(runs: Path) -> list[dict[str, Any]]:
    """Each step's metrics."""
    lines = (runs / "latest" / "metrics.jsonl").read_text().splitlines()
    steps = [json.loads(line) for line in lines]
    return [
        {k: v for k, v in step.get("data", step).items() if not k.startswith(NO_RESULT) and "/perf/" not in k}
        for step in steps
    ]


def digests(runs: Path) -> list[str]:
    """The digests of the weights that reached the rollout."""
    return [e["digest"] for e in events.read(runs / "latest" / "events.jsonl") if e["kind"] == "weights"]


@pytest.mark.parametrize("algorithm", ["ppo", "grpo"])
@pytest.mark.parametrize("trainer", ["v0", "v1"])
def test_the_numbers_are_the_same_bit_for_bit(tmp_path: Path, trainer: str, algorithm: str) -> None:
    for fork in ("--fork", "--no-fork"):
        words = (fork, "--trainer", trainer, "--algorithm", algorithm, "--steps", "3")
        climb = start(tmp_path / fork, *words)
        out, _ = climb.communicate(timeout=SECONDS)
        assert climb.returncode == 0, out
    forked, started = results(tmp_path / "--fork"), results(tmp_path / "--no-fork")
    assert len(forked) == 3
    assert forked == started
    assert digests(tmp_path / "--fork") == digests(tmp_path / "--no-fork") != []
    kinds = [e["kind"] for e in events.read(tmp_path / "--fork" / "latest" / "events.jsonl")]
    assert "fork_declined" not in kinds


def kill_worker(climb: psutil.Process, members: list[psutil.Process]) -> None:
    """SIGKILL to a training worker, as the kernel does it when memory runs out."""
    next(p for p in members if "WorkerDict" in name_of(p)).kill()


def kill_driver(climb: psutil.Process, members: list[psutil.Process]) -> None:
    """SIGKILL to the process that runs main_ppo."""
    next(p for p in members if name_of(p) == "verl.trainer.main_ppo").kill()


def kill_server(climb: psutil.Process, members: list[psutil.Process]) -> None:
    """SIGKILL to the fork server."""
    next(p for p in members if name_of(p) == "harness.warm.server").kill()


def kill_climb(climb: psutil.Process, members: list[psutil.Process]) -> None:
    """SIGKILL to the climb, which leaves it no time for anything."""
    climb.kill()


def interrupt(climb: psutil.Process, members: list[psutil.Process]) -> None:
    """Ctrl-C."""
    climb.send_signal(signal.SIGINT)


@pytest.mark.parametrize(
    ("act", "code"),
    [(kill_worker, None), (kill_driver, None), (kill_server, None), (kill_climb, -9), (interrupt, None)],
)
def test_nothing_is_left(
    tmp_path: Path, act: Callable[[psutil.Process, list[psutil.Process]], None], code: int | None
) -> None:
    climb = start(tmp_path, "--steps", "1000", "--trainer", "v0")
    deadline = time.monotonic() + SECONDS
    path = tmp_path / "latest" / "events.jsonl"
    while sum(event["kind"] == "weights" for event in events.read(path)) < 2:
        assert climb.poll() is None, climb.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.2)
    run_id = json.loads((tmp_path / "latest" / "run.json").read_text())["id"]
    act(psutil.Process(climb.pid), Members(run_id).find())
    out, _ = climb.communicate(timeout=120)
    assert climb.returncode not in (0, None)
    assert code is None or climb.returncode == code
    assert code is not None or "Traceback" not in out
    deadline = time.monotonic() + 20
    while (left := Members(run_id).find()) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert not left, [name_of(process) for process in left]


def test_an_exception_in_a_worker_ends_the_run(tmp_path: Path) -> None:
    reward = tmp_path / "reward.py"
    reward.write_text("def score(*args, **kwargs):\n    raise ValueError('on purpose')\n")
    climb = start(tmp_path / "runs", "--reward", f"{reward}:score")
    out, _ = climb.communicate(timeout=SECONDS)
    assert climb.returncode not in (0, None)
    assert "on purpose" in out
    run_id = json.loads((tmp_path / "runs" / "latest" / "run.json").read_text())["id"]
    assert not Members(run_id).find()


def test_an_unknown_ray_starts_normally_with_the_same_numbers(tmp_path: Path) -> None:
    (tmp_path / "unknown.py").write_text(
        "import sys\nfrom harness.warm import ray_hooks\nray_hooks.RAY = '1.0'\n"
        "from harness.cli import main\nmain()\n"
    )
    out = {}
    for name, program in (("known", ["-m", "harness"]), ("unknown", [str(tmp_path / "unknown.py")])):
        words = ["climb", "--from", "ppo", "--steps", "2", "--runs", str(tmp_path / name)]
        done = subprocess.run(
            [sys.executable, "-P", *program, *words],
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=True,
            env=dict(os.environ),
        )
        out[name] = done.stdout + done.stderr
    assert "not forked: ray 2.59.0 is installed, the fork server knows 1.0" in out["unknown"]
    assert "not forked" not in out["known"]
    assert results(tmp_path / "known") == results(tmp_path / "unknown")
