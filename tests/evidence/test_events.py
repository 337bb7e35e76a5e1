"""Events: whole lines from many processes, cheap to import, never in a trainer's way."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.evidence import events
from harness.evidence.titles import title

ROOT = Path(__file__).parents[2]
Python = Callable[..., list[str]]

WRITER = """
from harness.evidence import events
for number in range(400):
    assert events.emit("tick", writer=int(sys.argv[1]), number=number, text="x" * (number * 7 % 900))
"""


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "events.jsonl"
    monkeypatch.setenv(events.FILE_VARIABLE, str(path))
    return path


def test_eight_processes_write_only_whole_lines(python: Python, log: Path) -> None:
    children = [subprocess.Popen(python(WRITER, str(number))) for number in range(8)]
    assert [child.wait(timeout=60) for child in children] == [0] * 8
    found = events.read(log)
    assert Counter(event["writer"] for event in found) == dict.fromkeys(range(8), 400)
    for writer in range(8):
        assert [event["number"] for event in found if event["writer"] == writer] == list(range(400))
    assert len({event["pid"] for event in found}) == 8


def test_an_event_says_when_who_and_what(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(events.ROLE_VARIABLE, "driver")
    assert events.emit("patch", name="gloo", pid="mine", values=(1, float("nan"), Path("a")))
    (event,) = events.read(log)
    assert event["kind"] == "patch"
    assert event["role"] == "driver"
    assert isinstance(event["pid"], int)
    assert event["values"] == [1, "nan", "a"]
    assert event["time"].endswith("Z")
    assert len(event["time"]) == len("2026-11-30T09:24:11.474469Z")


def test_without_a_file_it_does_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(events.FILE_VARIABLE, raising=False)
    assert not events.emit("x")
    monkeypatch.setenv(events.FILE_VARIABLE, str(tmp_path / "no" / "folder"))
    assert not events.emit("x")
    monkeypatch.setenv(events.FILE_VARIABLE, "/dev/full")
    assert not events.emit("x")


def test_a_long_event_is_clipped_to_a_line_that_says_so(log: Path) -> None:
    events.emit("big", text="x" * 100_000, more=[1] * 50_000)
    (event,) = events.read(log)
    assert event["clipped_bytes"] > 100_000
    assert len(log.read_bytes()) < events.LINE_LIMIT


def test_a_cut_last_line_is_left_out_and_a_broken_one_is_shown(log: Path) -> None:
    events.emit("a")
    with log.open("a") as file:
        file.write('{"kind": "b"\n')
    events.emit("c")
    with log.open("a") as file:
        file.write('{"kind": "d", "ti')
    assert [event["kind"] for event in events.read(log)] == ["a", events.UNREADABLE, "c"]
    assert events.read(log.with_name("nothing")) == []


def test_it_imports_only_the_standard_library() -> None:
    code = f"""
import json, sys
sys.path.insert(0, {str(ROOT)!r})
import harness.evidence.events
print(json.dumps(sorted({{name.split(".")[0] for name in sys.modules}} - set(sys.stdlib_module_names))))
"""
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True
    )
    assert set(json.loads(done.stdout)) <= {"harness", "__main__"}


@pytest.mark.parametrize(
    ("argv", "name"),
    [
        (["ray::WorkerDict.actor_rollout_update_actor"], "ray::WorkerDict"),
        (["ray::AgentLoopWorker.generate_sequences()", ""], "ray::AgentLoopWorker"),
        (["ray::IDLE"], "ray::IDLE"),
        (["/env/bin/python3.11", "-u", "-m", "verl.trainer.main_ppo", "a=b"], "verl.trainer.main_ppo"),
        (["python", "/env/ray/dashboard/agent.py", "--x"], "agent.py"),
        (["python", "-c", "print()"], "python -c"),
        (["python3"], "python3"),
        (["/env/ray/core/src/ray/raylet/raylet", "--raylet_socket_name=x"], "raylet"),
        ([], "?"),
    ],
)
def test_titles(argv: list[str], name: str) -> None:
    assert title(argv) == name
