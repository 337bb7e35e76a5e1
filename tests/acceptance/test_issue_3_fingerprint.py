"""Issue 3, fingerprint: a byte changed after the driver's check is found by each process that starts then."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.evidence import events
from harness.evidence.model import load

pytestmark = pytest.mark.acceptance
SECONDS = 400
SITE = f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of this environment. Its files are shared with it: they are replaced, never written to."""
    target = tmp_path_factory.mktemp("environment") / "cpu"
    shutil.copytree(sys.prefix, target, symlinks=True, copy_function=os.link)
    return target


@pytest.fixture
def plant(copy: Path) -> Iterator[Callable[[str], Path]]:
    """Replace a file by one with another last byte; afterwards the old one is put back."""
    kept: list[tuple[Path, Path]] = []

    def replace(name: str) -> Path:
        path = copy / SITE / name
        old, new = path.with_name(f"{path.name}.old"), path.with_name(f"{path.name}.new")
        os.link(path, old)
        content = path.read_bytes()
        assert content.endswith(b"\n")
        new.write_bytes(content[:-1] + b" ")  # still the same program
        new.replace(path)
        kept.append((old, path))
        return path

    yield replace
    for old, path in kept:
        old.replace(path)


def start(copy: Path, runs: Path, *words: str) -> subprocess.Popen[str]:
    command = [copy / "bin" / "python", "-P", "-m", "harness", "climb", "--from", "ppo", "--to", "ppo"]
    return subprocess.Popen(
        [*command, "--steps", "2", "--runs", runs, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def wait(climb: subprocess.Popen[str], runs: Path, condition: Callable[[dict[str, Any]], bool]) -> None:
    """Until an event of the run fulfils the condition."""
    deadline = time.monotonic() + SECONDS
    while not any(condition(event) for event in events.read(runs / "latest" / "events.jsonl")):
        assert climb.poll() is None, climb.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.02)


def verified(event: dict[str, Any]) -> bool:
    """The driver's check is over, and passed."""
    return event["kind"] == "environment_verified"


def driver_runs(event: dict[str, Any]) -> bool:
    """``main_ppo`` has verl and was checked: who comes next is a Ray worker."""
    return event["kind"] == "activated" and "main_ppo" in event["role"]


@pytest.mark.parametrize("fork", ["--fork", "--no-fork"])
@pytest.mark.parametrize(
    ("name", "moment"),
    [
        ("verl/workers/engine/fsdp/utils.py", verified),
        ("verl/workers/engine/fsdp/utils.py", driver_runs),
        ("torch/optim/adamw.py", driver_runs),
    ],
)
def test_a_process_refuses_what_was_changed_after_the_drivers_check(
    copy: Path,
    plant: Callable[[str], Path],
    tmp_path: Path,
    name: str,
    moment: Callable[[dict[str, Any]], bool],
    fork: str,
    record_property: Callable[[str, object], None],
) -> None:
    climb = start(copy, tmp_path, fork)
    wait(climb, tmp_path, moment)
    path = plant(name)
    said, _ = climb.communicate(timeout=SECONDS)
    assert climb.returncode == 13, said
    assert str(path) in said
    assert "Traceback" not in said
    run = load(tmp_path / "latest")
    assert run.failure is not None
    assert (run.exit_code, run.failure.failure_class) == (13, "environment")
    assert str(path) in run.failure.cause
    seen = events.read(tmp_path / "latest" / "events.jsonl")
    (refused, *_) = [event for event in seen if event["kind"] == "environment_differs"]
    record_property("refused", refused["role"])
    assert ("ray::" in refused["role"]) is (moment is driver_runs)


def test_every_process_of_a_run_was_checked(
    copy: Path, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    for fork in ("--fork", "--no-fork"):
        runs = tmp_path / fork
        climb = start(copy, runs, fork)
        said, _ = climb.communicate(timeout=SECONDS)
        assert climb.returncode == 0, said
        seen = events.read(runs / "latest" / "events.jsonl")
        # The driver too uses verl, once the trainer has ended; nobody forks it.
        driver = next(event["pid"] for event in seen if verified(event))
        began = [event for event in seen if event["kind"] == "activated" and event["pid"] != driver]
        checks = [event["environment"] for event in began]
        assert all(check["forked"] is (fork == "--fork") for check in checks)
        record_property(f"seconds {fork}", [check["seconds"] for check in checks])
        assert len(checks) >= 4
