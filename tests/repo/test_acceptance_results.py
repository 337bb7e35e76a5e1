"""The acceptance session keeps its results, resumes, and never takes an old result for a new one."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

CONFTEST = Path(__file__).parents[1] / "acceptance" / "conftest.py"
PROOFS = """
import pathlib, pytest
pytestmark = pytest.mark.acceptance

def test_good(record_property):
    record_property("seconds_per_step", 1.5)
    with pathlib.Path("ran.log").open("a") as log:
        log.write("x")

def test_bad():
    assert 1 == 2
"""


def git(root: Path, *arguments: str) -> str:
    name = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    return subprocess.run(
        ["git", *name, *arguments], cwd=root, check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    folder = tmp_path / "tests" / "acceptance"
    folder.mkdir(parents=True)
    shutil.copy(CONFTEST, folder)
    (folder / "test_issue_2_things.py").write_text(PROOFS)
    (folder / "test_issue_21.py").write_text(PROOFS)
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\naddopts = --import-mode=importlib\nmarkers = acceptance: a\n"
    )
    (tmp_path / ".gitignore").write_text("ran.log\n__pycache__/\n.pytest_cache/\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "start")
    return tmp_path


def prove(repo: Path, *arguments: str) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "tests/acceptance",
        "-m",
        "acceptance",
        "--issue=2",
        *arguments,
    ]
    done = subprocess.run(command, cwd=repo, check=False, capture_output=True, text=True)
    return done, json.loads((repo / "docs/acceptance/issue-2.json").read_text())


def times_run(repo: Path) -> int:
    return len((repo / "ran.log").read_text())


def test_results_hold_the_commit_the_outcome_and_what_was_measured(repo: Path) -> None:
    done, document = prove(repo)
    assert done.returncode == 1, done.stdout
    head = git(repo, "rev-parse", "HEAD")
    bad, good = document["tests"]
    assert (document["issue"], document["commit"]) == (2, head)
    assert bad["outcome"] == "failed"
    assert "test_issue_2_things.py" in bad["why"]
    assert (good["outcome"], good["commit"], good["dirty"]) == ("passed", head, False)
    assert good["measured"] == {"seconds_per_step": 1.5}
    assert not list(repo.glob("docs/acceptance/*.tmp"))


def test_only_what_has_not_passed_on_this_commit_runs_again(repo: Path) -> None:
    prove(repo)
    done, document = prove(repo)
    assert "1 failed" in done.stdout
    assert times_run(repo) == 1
    assert [test["outcome"] for test in document["tests"]] == ["failed", "passed"]
    prove(repo, "--fresh")
    assert times_run(repo) == 2


def test_committing_the_results_does_not_make_them_old_but_a_change_does(repo: Path) -> None:
    prove(repo)
    git(repo, "add", "docs")
    git(repo, "commit", "-qm", "results")
    prove(repo)
    assert times_run(repo) == 1
    (repo / "product.py").write_text("x = 1\n")
    _, document = prove(repo)
    assert times_run(repo) == 2
    assert document["tests"][1]["dirty"] is True
    git(repo, "add", ".")
    git(repo, "commit", "-qm", "change")
    prove(repo)
    assert times_run(repo) == 3


def test_nothing_left_to_do_is_success(repo: Path) -> None:
    file = repo / "tests/acceptance/test_issue_2_things.py"
    file.write_text(PROOFS.replace("assert 1 == 2", "assert True"))
    git(repo, "commit", "-qam", "repair")
    assert prove(repo)[0].returncode == 0
    done, document = prove(repo)
    assert done.returncode == 0, done.stdout
    assert times_run(repo) == 1
    assert [test["outcome"] for test in document["tests"]] == ["passed", "passed"]
