"""The fingerprint moves with a byte of profile, lock, harness or overlay, and with nothing else."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.errors import EnvironmentDiffersError, LockError
from harness.fingerprint.identity import fingerprint
from harness.fingerprint.lock import lock_file, pins
from harness.profiles import load

ROOT = Path(__file__).parents[2]
PRINT = """
import json, sys
from pathlib import Path
from harness.fingerprint.identity import fingerprint
from harness.profiles import load
source = Path(sys.argv[1]) if len(sys.argv) > 1 else None
print(json.dumps(fingerprint(load("cpu"), source, Path.cwd())))
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of what counts, to spoil."""
    for name in ("harness", "profiles", "docker"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def taken(tree: Path, *arguments: str) -> str:
    command = [sys.executable, "-c", PRINT, *arguments]
    done = subprocess.run(
        command,
        cwd=tree,
        env={"PYTHONPATH": str(tree), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def flip(path: Path) -> None:
    """Change one byte and keep the file meaningful: a digit."""
    text = path.read_bytes()
    place = next(n for n, byte in enumerate(text) if byte in b"012345678")
    path.write_bytes(text[:place] + bytes([text[place] + 1]) + text[place + 1 :])


def comment(path: Path) -> None:
    path.write_text(path.read_text() + "\n")


CHANGES: dict[str, Callable[[Path], None]] = {
    "profile": lambda tree: (
        (tree / "profiles/cpu.yaml").write_text(
            (tree / "profiles/cpu.yaml").read_text().replace("memory_gib: 16\n", "memory_gib: 17\n", 1)
        )
        and None
    ),
    "lock": lambda tree: flip(tree / "docker/rendered/cpu/requirements.lock"),
    "harness": lambda tree: comment(tree / "harness/ladder/rungs.py"),
    "a new file": lambda tree: (tree / "harness/adapt/rollout/sitecustomize.py").write_text("") and None,
    "a yaml": lambda tree: comment(tree / "harness/adapt/agent_loop.yaml"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_one_byte_changes_it(tree: Path, change: str) -> None:
    before = taken(tree)
    CHANGES[change](tree)
    assert taken(tree) != before


def test_nothing_else_changes_it(tree: Path) -> None:
    """The place, the clock, caches and other profiles' files: no reason to make an environment anew."""
    before = taken(tree)
    shutil.copytree(ROOT / "tests" / "repo", tree / "tests")
    (tree / "harness/__pycache__").mkdir(exist_ok=True)
    (tree / "harness/__pycache__/x.pyc").write_bytes(b"x")
    flip(tree / "docker/rendered/a100/requirements.lock")
    (tree / "harness/ladder/rungs.py").touch()
    assert taken(tree) == before


@pytest.fixture
def overlay(tmp_path: Path) -> Path:
    folder = tmp_path / "checkout"
    (folder / "verl").mkdir(parents=True)
    (folder / "verl" / "__init__.py").write_text("x = 1\n")
    return folder


def git(folder: Path, *words: str) -> str:
    command = ["git", "-C", str(folder), "-c", "user.name=t", "-c", "user.email=t@t", *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_an_overlay_in_git_counts_with_commit_and_difference(overlay: Path, tmp_path: Path) -> None:
    git(overlay, "init", "-q")
    git(overlay, "add", ".")
    git(overlay, "commit", "-qm", "one")
    clean = fingerprint(load("cpu"), overlay, tmp_path)
    assert clean["parts"]["verl_overlay"]["commit"] == git(overlay, "rev-parse", "HEAD")
    assert clean["parts"]["verl_overlay"]["diff"] is None
    assert not (tmp_path / "verl.diff").exists()
    (overlay / "verl" / "__init__.py").write_text("x = 2\n")
    changed = fingerprint(load("cpu"), overlay, tmp_path)
    assert (
        changed["environment"]
        != clean["environment"]
        != fingerprint(load("cpu"), None, tmp_path)["environment"]
    )
    assert "+x = 2" in (tmp_path / "verl.diff").read_text()


def test_an_untracked_file_of_an_overlay_counts_too(overlay: Path, tmp_path: Path) -> None:
    """``git diff`` does not show it, and yet verl imports it."""
    git(overlay, "init", "-q")
    git(overlay, "add", ".")
    git(overlay, "commit", "-qm", "one")
    before = fingerprint(load("cpu"), overlay, tmp_path)
    (overlay / "verl" / "new.py").write_text("")
    assert fingerprint(load("cpu"), overlay, tmp_path)["environment"] != before["environment"]


def test_an_overlay_outside_git_counts_with_its_files(overlay: Path, tmp_path: Path) -> None:
    before = fingerprint(load("cpu"), overlay, tmp_path)
    assert before["parts"]["verl_overlay"]["commit"] is None
    (overlay / "verl" / "__init__.py").write_text("x = 2\n")
    assert fingerprint(load("cpu"), overlay, tmp_path)["environment"] != before["environment"]


def test_a_folder_without_verl_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentDiffersError, match="holds no verl"):
        fingerprint(load("cpu"), tmp_path, tmp_path)


# --- the lock's pins ------------------------------------------------------------------------------------


def test_the_pins_are_those_of_the_lock() -> None:
    found = pins(load("cpu"))
    assert found["verl"] == "0.9.1"
    assert found["torch"] == "2.13.0+cpu"
    lines = lock_file(load("cpu")).read_text().splitlines()
    assert len(found) == sum("==" in line and not line.startswith((" ", "#")) for line in lines) > 100


def test_a_lock_that_is_gone(tree: Path) -> None:
    code = "from harness.fingerprint.lock import pins\nfrom harness.profiles import load\npins(load('cpu'))"
    (tree / "docker/rendered/cpu/requirements.lock").unlink()
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tree,
        env={"PYTHONPATH": str(tree), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert f"{LockError.__name__}: " in done.stderr
    assert "nox -s lock" in done.stderr
