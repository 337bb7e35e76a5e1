"""Issue 7, bisect: one planted commit among sixteen of the locked verl is found, by real climbs."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.evidence.model import load

pytestmark = pytest.mark.acceptance
ROOT = Path(__file__).parents[2]
COMMITS = 16
CORE = "verl/trainer/ppo/core_algos.py"
SIGN = ("    pg_losses1 = -advantages * ratio\n", "    pg_losses1 = advantages * ratio\n")
KL = (
    "        kld = (ratio - kl - 1).contiguous()\n",
    "        kld = (ratio - kl - 1).contiguous() * 1.001\n",
)


def git(folder: Path, *words: str) -> str:
    command = ["git", "-C", str(folder), "-c", "user.name=t", "-c", "user.email=t@t", *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def history(folder: Path, plant: tuple[str, str], at: int, file: str = CORE) -> list[str]:
    """The installed verl and sixteen commits, each with a line of its own; number ``at`` brings the fault."""
    (verl,) = importlib.util.find_spec("verl").submodule_search_locations  # type: ignore[union-attr,misc]
    shutil.copytree(verl, folder / "verl", ignore=shutil.ignore_patterns("__pycache__"))
    git(folder, "init", "-q", "-b", "main")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "as released")
    git(folder, "tag", "released")
    touched = sorted((folder / "verl" / "utils").rglob("*.py"))
    shas = []
    for number in range(1, COMMITS + 1):
        with touched[number].open("a") as harmless:
            harmless.write(f"\n# change {number}\n")
        if number == at:
            path = folder / file
            text = path.read_text()
            assert plant[0] in text
            path.write_text(text.replace(*plant))
        git(folder, "commit", "-qam", f"change {number}")
        shas.append(git(folder, "rev-parse", "HEAD"))
    return shas


def bisect(source: Path, runs: Path, *words: str) -> tuple[int, dict[str, Any], str]:
    command = [sys.executable, "-P", "-m", "harness", "bisect", "--json", "--verl-source", str(source)]
    done = subprocess.run(
        [*command, "--runs", str(runs), "released..main", *(["--", *words] if words else [])],
        # What bisect lays out goes before the locked verl; a test runs inside the environment already.
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=3600,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, json.loads(done.stdout), done.stderr


PLANTED = [
    (SIGN, 11, ("--from", "forward"), ("forward", "verdict"), "status"),
    (KL, 6, ("--from", "ppo", "--steps", "2"), ("ppo", "metric"), "actor/"),
]


@pytest.mark.parametrize(("plant", "at", "words", "where", "key"), PLANTED, ids=["sign", "kl"])
def test_one_planted_commit_among_sixteen(
    tmp_path: Path,
    plant: tuple[str, str],
    at: int,
    words: tuple[str, ...],
    where: tuple[str, str],
    key: str,
    record_property: Callable[[str, object], None],
) -> None:
    source = tmp_path / "verl"
    shas = history(source, plant, at)
    before = git(source, "status", "--porcelain")
    code, found, said = bisect(source, tmp_path / "runs", *words)
    assert code == 0, (found, said)
    assert found["commit"] == shas[at - 1], said
    assert found["title"] == f"change {at}"
    assert (found["parting"]["rung"], found["parting"]["kind"]) == where
    assert found["parting"]["key"].startswith(key)
    assert found["runs"] <= math.log2(COMMITS) + 2
    for name, sha in (("bad_run", shas[at - 1]), ("good_run", shas[at - 2])):
        overlay = load(Path(found[name])).fingerprint["parts"]["verl_overlay"]  # type: ignore[index,call-overload]
        assert overlay["commit"] == sha, "the record says which checkout it was made with"  # type: ignore[index,call-overload]
        assert overlay["diff"] is None  # type: ignore[index,call-overload]
    assert git(source, "status", "--porcelain") == before == ""
    assert git(source, "worktree", "list").count("\n") == 0
    record_property("runs", found["runs"])
    record_property("parting", found["parting"])
