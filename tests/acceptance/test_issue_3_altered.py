"""Issue 3, fingerprint inside the image: one byte that is not as it was built, and nothing starts."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.evidence import events
from harness.profiles import root

pytestmark = pytest.mark.acceptance

Docker = Callable[..., subprocess.CompletedProcess[str]]
SITE = "/opt/verlock/lib/python3.11/site-packages"
SHARE = "/opt/verlock/share/verlock"
CODE = f"{SITE}/verl/workers/engine/fsdp/utils.py"
LOCK = f"{SHARE}/docker/rendered/cpu/requirements.lock"
OWN = 1000
SECONDS = 600


@pytest.fixture(scope="module")
def docker(engine: dict[str, str]) -> Docker:
    """The engine's client."""

    def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
        command = ["/usr/bin/docker", *map(str, words)]
        variables = {**os.environ, **engine}
        return subprocess.run(command, env=variables, capture_output=True, text=True, check=False)

    return run


@pytest.fixture(scope="module")
def cpu_image(docker: Docker, image: Callable[[str], dict[str, Any]]) -> str:
    """The cpu image of this checkout, by the name that its archive gives it."""
    record = image("cpu")
    there = docker("image", "inspect", "--format", "{{.Id}}", record["name"])
    assert there.stdout.strip() in {record["config"], record["manifest"]}, there.stderr
    return str(record["name"])


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A folder that the image's user may write to."""
    folder = tmp_path / "runs"
    folder.mkdir()
    os.chown(folder, OWN, OWN)
    return folder


CONFINED = ("--network", "none", "--read-only", "--tmpfs", "/tmp:exec,mode=1777", "--env", "USER=verlock")


@pytest.mark.parametrize(
    ("path", "change", "named"),
    [
        (CODE, lambda text: text[:-1] + b" ", "verl/workers/engine/fsdp/utils.py"),
        (LOCK, lambda text: text.replace(b"ray==2.", b"ray==3.", 1), "requirements.lock"),
        (LOCK, lambda text: text + b"\n", "requirements.lock"),
    ],
    ids=["verl", "lock", "lock-comment"],
)
def test_one_byte_that_was_overwritten_is_refused_by_the_driver(
    docker: Docker,
    cpu_image: str,
    runs: Path,
    tmp_path: Path,
    path: str,
    change: Callable[[bytes], bytes],
    named: str,
) -> None:
    held = docker("create", cpu_image)
    altered = tmp_path / "altered"
    assert docker("cp", f"{held.stdout.strip()}:{path}", altered).returncode == 0
    docker("rm", held.stdout.strip())
    climb = ("run", "--rm", *CONFINED, "--volume", f"{runs}:/runs")
    words = ("climb", "--to", "env", "--runs", "/runs")
    assert docker(*climb, "--volume", f"{altered}:{path}:ro", cpu_image, *words).returncode == 0
    altered.write_bytes(change(altered.read_bytes()))
    told = docker(*climb, "--volume", f"{altered}:{path}:ro", cpu_image, *words)
    assert told.returncode in {12, 13}, told.stdout + told.stderr
    assert named in told.stdout + told.stderr
    assert "Traceback" not in told.stdout + told.stderr


def test_one_byte_that_is_overwritten_while_it_runs_is_refused_by_a_ray_worker(
    docker: Docker, cpu_image: str, runs: Path, record_property: Callable[[str, object], None]
) -> None:
    """The driver and ``main_ppo`` have passed; the file is changed before the first worker starts."""
    confined = ("--network", "none", "--env", "USER=verlock", "--shm-size", "2g")
    words = ("climb", "--from", "ppo", "--steps", "2", "--no-fork", "--runs", "/runs")
    started = docker("run", "--detach", *confined, "--volume", f"{runs}:/runs", cpu_image, *words)
    container = started.stdout.strip()
    assert started.returncode == 0, started.stderr
    try:
        deadline = time.monotonic() + SECONDS
        while not any(_driver_runs(event) for event in events.read(runs / "latest" / "events.jsonl")):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        overwrite = f"printf ' ' | dd of={CODE} bs=1 seek=$(($(stat -c %s {CODE}) - 1)) conv=notrunc"
        assert docker("exec", "--user", "0", container, "sh", "-c", overwrite).returncode == 0
        code = docker("wait", container).stdout.strip()
        said = docker("logs", container)
    finally:
        docker("rm", "--force", container)
    assert code == "13", said.stdout[-2000:] + said.stderr[-2000:]
    assert CODE in said.stdout + said.stderr
    seen = events.read(runs / "latest" / "events.jsonl")
    refused = next(event for event in seen if event["kind"] == "environment_differs")
    assert "ray::" in refused["role"]
    record_property("refused", refused["role"])


def _driver_runs(event: dict[str, object]) -> bool:
    return event["kind"] == "activated" and "main_ppo" in str(event["role"])


def test_a_lock_of_the_checkout_that_changed_after_the_build_is_refused(
    cpu_image: str, tmp_path: Path
) -> None:
    """By the machine that would start the container: the image is not of this checkout any more."""
    for part in ("profiles", "docker", "harness", "dist"):
        ignore = shutil.ignore_patterns("__pycache__", "*.tar")
        shutil.copytree(root() / part, tmp_path / part, ignore=ignore)
    lock = tmp_path / "docker" / "rendered" / "cpu" / "requirements.lock"
    lock.write_text(lock.read_text() + "\n")
    command = [sys.executable, "-m", "harness", "climb", "--image", "--runs", str(tmp_path / "runs")]
    environment = {**os.environ, "VERLOCK_ROOT": str(tmp_path)}
    told = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert told.returncode == 13, told.stderr
    assert "requirements.lock" in told.stderr
    assert "nox -s build-cpu" in told.stderr
