"""A verl checkout laid over the locked one, for those who are changing verl itself."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.adapt import names

pytest.importorskip("verl", reason="verl comes with the lock")
(VERL,) = importlib.util.find_spec("verl").submodule_search_locations  # type: ignore[union-attr,misc]

Climb = Callable[..., Any]
ANCHORED = 'attn_implementation="flash_attention_2"'


def git(folder: Path, *words: str) -> str:
    command = ["git", "-C", str(folder), "-c", "user.name=t", "-c", "user.email=t@t", *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The installed verl as a git checkout; the code that one patch rests on is changed, uncommitted."""
    folder = tmp_path / "checkout"
    shutil.copytree(VERL, folder / "verl", ignore=shutil.ignore_patterns("__pycache__"))
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "as released")
    model = folder / "verl" / "utils" / "model.py"
    text = model.read_text()
    assert ANCHORED in text
    model.write_text(text.replace(ANCHORED, 'attn_implementation=str("flash_attention_2")'))
    return folder


def test_an_unfit_patch_stops_the_climb_and_can_be_left_out(climb: Climb, checkout: Path) -> None:
    """Whoever edits the anchored line is told which patch rests on it, and how to go on without it."""
    words = ["--to", "env", "--verl-source", checkout]
    overlay = {"VERLOCK_TEST": "1", "PYTHONPATH": f"{checkout}:{Path(__file__).parents[2]}"}
    stopped = climb(*words, **overlay)
    assert stopped.exit_code == 19, stopped.stdout
    assert stopped.failed_rung == "env"
    said = stopped.problems
    assert f"patch {names.VALUE_HEAD_ATTENTION} does not fit" in said
    assert "- attn_implementation='flash_attention_2'" in said
    assert "attn_implementation=str('flash_attention_2')" in said
    assert f"--without-patch {names.VALUE_HEAD_ATTENTION}" in said

    passed = climb(*words, "--without-patch", names.VALUE_HEAD_ATTENTION, **overlay)
    assert passed.exit_code == 0, passed.stdout
    (env,) = passed.run.rungs
    assert env.details["patches"][names.VALUE_HEAD_ATTENTION] == "left out"  # type: ignore[index,call-overload]
    part = passed.run.fingerprint["parts"]["verl_overlay"]  # type: ignore[index,call-overload]
    assert part["commit"] == git(checkout, "rev-parse", "HEAD")  # type: ignore[index,call-overload]
    assert part["diff"]  # type: ignore[index,call-overload]
    assert "+" in (passed.folder / "verl.diff").read_text()
    assert "str(" in (passed.folder / "verl.diff").read_text()


def test_an_overlay_that_is_not_used_is_found(warm_climb: Climb, checkout: Path) -> None:
    """A checkout that was asked for and not imported would be proven by running another verl."""
    done = warm_climb("--to", "env", "--verl-source", checkout)
    assert done.exit_code == 13, done.stdout
    assert "--verl-source" in done.problems
