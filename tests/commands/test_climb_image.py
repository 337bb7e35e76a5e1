"""Where a climb goes: into the image when asked, and without being asked on a machine with the GPU."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from harness.profiles import root

SMI = '#!/bin/sh\necho "{card}"\n'


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Profiles and locks, and no image."""
    for part in ("profiles", "docker"):
        shutil.copytree(root() / part, tmp_path / part)
    return tmp_path


def climb(checkout: Path, *words: str, card: str | None = None) -> subprocess.CompletedProcess[str]:
    """``verlock climb``, on a machine whose nvidia-smi shows ``card``."""
    tools = checkout / "tools"
    tools.mkdir()
    if card:
        (tools / "nvidia-smi").write_text(SMI.format(card=card))
        (tools / "nvidia-smi").chmod(0o755)
    environment = {**os.environ, "VERLOCK_ROOT": str(checkout), "PATH": f"{tools}:{os.environ['PATH']}"}
    command = [sys.executable, "-m", "harness", "climb", *words]
    return subprocess.run(command, env=environment, cwd=checkout, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("words", "card", "code", "said"),
    [
        (["--image"], None, 28, "nox -s build-cpu"),
        (["--image", "--runs", "records"], None, 28, "nox -s build-cpu"),
        (["--image", "--profile", "p40", "--rehearse"], None, 28, "nox -s build-p40"),
        (["--profile", "p40"], "Tesla P40, 6.1", 28, "nox -s build-p40"),
        (["--profile", "a100"], "NVIDIA A100-SXM4-80GB, 8.0", 28, "nox -s build-a100"),
        (["--profile", "p40", "--image"], None, 18, "--rehearse"),
        (["--image", "--native"], None, 2, "exclude each other"),
        (["--image", "--model", "no/such"], None, 21, "no/such: is not there"),
        (["--image", "--reward", "no.py:f"], None, 21, "no.py: is not there"),
        (["--image", "--verl-source", "none"], None, 21, "none: is not there"),
        (["--image", "data.train_files=profiles/cpu.yaml"], None, 21, "write it whole"),
    ],
)
def test_where_a_climb_goes(checkout: Path, words: list[str], card: str | None, code: int, said: str) -> None:
    done = climb(checkout, *words, card=card)
    assert done.returncode == code, done.stdout + done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not (checkout / "runs").exists()
