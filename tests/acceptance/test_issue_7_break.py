"""Issue 7, debug entry points in Ray's workers: a stack with locals, and pdb in an event loop."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from harness.evidence import events
from harness.evidence.model import load

pytestmark = pytest.mark.acceptance
ROOT = Path(__file__).parents[2]
PPO = ("--from", "ppo", "--to", "ppo", "--steps", "1")


def climb(runs: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "harness", "climb", "--runs", str(runs), *words],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def seen(runs: Path, kind: str) -> list[dict[str, Any]]:
    return [event for event in events.read(runs / "latest" / "events.jsonl") if event["kind"] == kind]


@pytest.mark.parametrize("fork", ["--fork", "--no-fork"])
def test_a_ray_worker_shows_its_stack_and_locals(tmp_path: Path, fork: str) -> None:
    process = climb(tmp_path, *PPO, fork, "--break", "verl/trainer/ppo/core_algos.py:1342@WorkerDict")
    said, _ = process.communicate(timeout=1800)
    assert process.returncode == 0, said
    (event,) = seen(tmp_path, "break")
    assert (event["role"], event["rank"], event["function"]) == (
        "ray::WorkerDict",
        "0",
        "compute_policy_loss_vanilla",
    )
    text = (tmp_path / "latest" / event["file"]).read_text()
    assert "> pg_losses1 = -advantages * ratio" in text
    assert "advantages = tensor float32 [4, 16] cpu min" in text
    assert f"ray::WorkerDict (pid {event['pid']}, rank 0) came to" in said
    assert load(tmp_path / "latest").status == "passed"


def test_pdb_in_an_async_actor(tmp_path: Path) -> None:
    """The event loop's thread was there before the module; the run goes on after it."""
    process = climb(
        tmp_path, *PPO, "--break", "AgentLoopWorkerTQ.generate_sequences@AgentLoopWorker", "--pdb"
    )
    until = time.monotonic() + 900
    while time.monotonic() < until and process.poll() is None:
        if (tmp_path / "latest").exists() and seen(tmp_path, "debugger"):
            break
        time.sleep(0.5)
    found = seen(tmp_path, "debugger")
    assert found, process.communicate(timeout=60)
    host, port = found[0]["address"].split(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        stream = connection.makefile("rw", newline="\n")
        stream.write("p type(self).__name__\nw\nc\n")
        stream.flush()
        answer = stream.read()
    assert "AgentLoopWorker" in answer
    assert "generate_sequences" in answer
    said, _ = process.communicate(timeout=1800)
    assert process.returncode == 0, said
    assert f"nc {host} {port}" in said


def test_a_place_that_nobody_comes_to_is_told(tmp_path: Path) -> None:
    process = climb(tmp_path, *PPO, "--break", "verl/trainer/ppo/core_algos.py:1342@WorkerDict:7")
    said, _ = process.communicate(timeout=1800)
    assert process.returncode == 0, said
    assert "no process came to" in said
    assert not (tmp_path / "latest" / "breaks").exists()


def test_a_place_that_is_none_starts_nothing(tmp_path: Path) -> None:
    words = ("climb", "--json", "--runs", str(tmp_path), "--break", "verl/trainer/ppo/core_algos.py:1")
    done = subprocess.run(
        [sys.executable, "-P", "-m", "harness", *words],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 21, done.stderr
    assert "no statement begins" in json.loads(done.stdout)["error"]["problems"][0]["what"]
    assert not list(tmp_path.iterdir())
