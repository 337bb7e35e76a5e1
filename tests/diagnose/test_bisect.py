"""The commit at fault in real repositories, in few runs, and the repository is left as it was."""

from __future__ import annotations

import hashlib
import math
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.commands.history import _words
from harness.diagnose.bisect import Bisected, Bisection, Tried
from harness.diagnose.commits import Repository
from harness.errors import BisectError
from harness.evidence.metrics import Step
from harness.evidence.model import Failure, Run, Rung
from harness.evidence.outcome import Outcome


def git(folder: Path, *words: str) -> str:
    command = ["git", "-C", str(folder), "-c", "user.name=ann", "-c", "user.email=a@example.org", *words]
    environ = {
        **os.environ,
        "GIT_AUTHOR_DATE": "2026-01-01T00:00:00Z",
        "GIT_COMMITTER_DATE": "2026-01-01T00:00:00Z",
    }
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environ).stdout.strip()


def commit(folder: Path, state: str, title: str, file: str = "verl/state.txt") -> str:
    """A commit whose verl says in one file what it does; no two are the same tree."""
    (folder / file).write_text(f"{state}\n{title}\n")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", title)
    return git(folder, "rev-parse", "HEAD")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "their verl"
    (folder / "verl").mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main")
    (folder / "verl" / "__init__.py").write_text("")
    commit(folder, "good", "as released")
    return folder


# What a climb with a state of the tiny verl comes to: the rung that fails, the loss, the KL of step 2.
STATES: dict[str, tuple[str | None, float, float]] = {
    "good": (None, 0.5, 1.0),
    "kl off": (None, 0.5, 1.0000000000000002),
    "loss off": (None, 0.25, 1.0),
    "forward breaks": ("forward", 0.5, 1.0),
    "ppo breaks": ("ppo", 0.5, 1.0),
    "does not import": ("env", 0.5, 1.0),
}
RUNGS = ("env", "forward", "ppo")


def came_to(state: str, last: str | None) -> Outcome:
    breaks, loss, kl = STATES[state]
    rungs, steps = [], {}
    for name in RUNGS[: RUNGS.index(last) + 1] if last else RUNGS:
        if name == breaks:
            rungs.append(Rung(name=name, status="failed"))
            break
        rungs.append(Rung(name=name, status="passed", details={"loss": loss} if name == "forward" else {}))
        if name == "ppo":
            steps["ppo"] = (Step(step=1, values={"kl": 1.0}), Step(step=2, values={"kl": kl, "other": loss}))
    failed = rungs[-1].status == "failed"
    failure = Failure(failure_class="backend", signature=f"{breaks}", cause="x") if failed else None
    run = Run(
        id="x", profile="cpu", command=[], started="", pid=1, rungs=rungs, failure=failure,
        status="failed" if failed else "passed", exit_code=22 if failed else 0,
    )  # fmt: skip
    return Outcome(run=run, steps=steps)


@pytest.fixture
def search(tmp_path: Path) -> Callable[..., tuple[Bisected, list[str]]]:
    """Bisect a repository, with climbs that read what is laid out; returns what was found, and the runs."""

    def run(folder: Path, span: str, metric: str | None = None) -> tuple[Bisected, list[str]]:
        asked: list[str] = []
        theirs = Repository(path=folder)
        place = tmp_path / f"checkout-{len(list(tmp_path.iterdir()))}"

        def climb(sha: str, last: str | None) -> Tried:
            asked.append(sha)
            theirs.lay_out(sha, place)
            assert git(place, "rev-parse", "HEAD") == sha
            state = (place / "verl" / "state.txt").read_text().splitlines()[0]
            return Tried(folder=tmp_path / sha, outcome=came_to(state, last))

        return Bisection(repository=theirs, run=climb, tell=lambda _line: None, metric=metric).locate(
            span
        ), asked

    return run


Search = Callable[..., tuple[Bisected, list[str]]]


def line(folder: Path, count: int, at: int, state: str) -> list[str]:
    """``count`` commits of which number ``at`` brings the state."""
    return [commit(folder, state if n >= at else "good", f"change {n}") for n in range(1, count + 1)]


@pytest.mark.parametrize("at", range(1, 17))
def test_each_of_sixteen_commits_is_found_in_six_runs(repository: Path, search: Search, at: int) -> None:
    base = git(repository, "rev-parse", "HEAD")
    shas = line(repository, 16, at, "kl off")
    found, asked = search(repository, f"{base}..main")
    assert found.commit == shas[at - 1]
    assert found.title == f"change {at}"
    assert (found.parting.rung, found.parting.kind, found.parting.key, found.parting.step) == (
        "ppo",
        "metric",
        "kl",
        2,
    )
    assert found.runs == len(asked) == len(set(asked)) <= math.log2(16) + 2
    assert found.commits == 16


@pytest.mark.parametrize(
    ("state", "sign"),
    [
        ("loss off", ("forward", "measured", "loss")),
        ("forward breaks", ("forward", "verdict", "status")),
        ("ppo breaks", ("ppo", "verdict", "status")),
        ("does not import", ("env", "verdict", "status")),
    ],
)
def test_the_rung_and_what_changed_in_it_are_named(
    repository: Path, search: Search, state: str, sign: tuple[str, str, str]
) -> None:
    base = git(repository, "rev-parse", "HEAD")
    shas = line(repository, 5, 4, state)
    found, _asked = search(repository, f"{base}..")
    assert found.commit == shas[3]
    assert (found.parting.rung, found.parting.kind, found.parting.key) == sign
    assert found.good_run.endswith(shas[2])
    assert found.bad_run.endswith(shas[3])


def test_another_fault_on_the_way_is_passed_over_and_not_blamed(repository: Path, search: Search) -> None:
    base = git(repository, "rev-parse", "HEAD")
    states = ["good", "good", "good", "does not import", "good", "kl off", "kl off", "kl off"]
    shas = [commit(repository, state, f"change {n}") for n, state in enumerate(states)]
    found, _asked = search(repository, f"{base}..main")
    assert found.commit == shas[5]
    assert found.judged[shas[3]] == "passed over"


def test_where_it_hides_behind_another_fault_all_suspects_are_named(repository: Path, search: Search) -> None:
    base = git(repository, "rev-parse", "HEAD")
    states = ["good", "good", "does not import", "does not import", "kl off", "kl off"]
    shas = [commit(repository, state, f"change {n}") for n, state in enumerate(states)]
    found, _asked = search(repository, f"{base}..main")
    assert found.commit is None
    assert set(found.suspects) == set(shas[2:5])


def test_one_metric_can_be_looked_at_alone(repository: Path, search: Search) -> None:
    """An earlier commit changes the loss as well; asked for is the one that changes the KL."""
    base = git(repository, "rev-parse", "HEAD")
    STATES["both off"] = (None, 0.25, 1.0000000000000002)
    states = ["good", "loss off", "loss off", "both off", "both off"]
    shas = [commit(repository, state, f"change {n}") for n, state in enumerate(states)]
    found, _asked = search(repository, f"{base}..main", "kl")
    assert found.commit == shas[3]
    assert (found.parting.key, found.parting.step) == ("kl", 2)
    with pytest.raises(BisectError, match="no rung logged a metric lk"):
        search(repository, f"{base}..main", "lk")


def test_a_branch_that_was_merged_is_searched_too(repository: Path, search: Search) -> None:
    base = git(repository, "rev-parse", "HEAD")
    git(repository, "checkout", "-qb", "side")
    (repository / "verl" / "side.txt").write_text("0")
    commit(repository, "0", "side 1", "verl/side.txt")
    guilty = commit(repository, "kl off", "side 2")
    git(repository, "checkout", "-q", "main")
    commit(repository, "0", "main 1", "verl/main.txt")
    git(repository, "merge", "-q", "--no-edit", "side")
    found, _asked = search(repository, f"{base}..main")
    assert found.commit == guilty


def test_commits_that_do_not_touch_verl_are_not_run(repository: Path, search: Search) -> None:
    base = git(repository, "rev-parse", "HEAD")
    commit(repository, "", "docs", "README.md")
    guilty = commit(repository, "kl off", "the change")
    for number in range(5):
        commit(repository, "", f"docs {number}", "README.md")
    found, asked = search(repository, f"{base}..main")
    assert (found.commit, found.commits, len(asked)) == (guilty, 1, 2)


def content(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_the_repository_is_left_as_it_was_to_the_last_byte(repository: Path, search: Search) -> None:
    """With uncommitted and untracked files, hooks that would run, and a worktree that somebody works in."""
    base = git(repository, "rev-parse", "HEAD")
    line(repository, 4, 3, "kl off")
    (repository / "verl" / "state.txt").write_text("not yet committed")
    (repository / "untracked").write_text("x")
    hook = repository / ".git" / "hooks" / "post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch '{repository}/ran'\n")
    hook.chmod(0o755)
    before = content(repository)
    search(repository, f"{base}..main")
    assert content(repository) == before


@pytest.mark.parametrize(
    ("span", "said"),
    [
        ("main", "is no range"),
        ("..main", "is no range"),
        ("main...main", "is no range"),
        ("nowhere..main", "there is no commit nowhere"),
        ("main..main", "no commit between the two touches verl"),
        ("other..main", "is no ancestor"),
        ("--all..main", "there is no commit --all"),
        ("{base}..main", "the two ends come to the same"),
    ],
)
def test_ends_that_cannot_be_searched_are_told(
    repository: Path, search: Search, span: str, said: str
) -> None:
    base = git(repository, "rev-parse", "HEAD")
    git(repository, "checkout", "-qb", "other")
    commit(repository, "good", "elsewhere")
    git(repository, "checkout", "-q", "main")
    commit(repository, "good", "change")
    with pytest.raises(BisectError, match=said):
        search(repository, span.format(base=base))


def test_what_is_no_repository_is_told(tmp_path: Path, search: Search) -> None:
    with pytest.raises(BisectError, match="there is no commit a"):
        search(tmp_path, "a..b")


def test_the_climb_never_goes_higher_than_the_sign() -> None:
    asked = ["--steps", "2", "--to", "ppo", "--full", "--to=ppo", "--", "trainer.nnodes=1"]
    said = _words(asked, Path("/c"), Path("/r"), "forward")
    assert said == [
        "climb",
        "--verl-source=/c",
        "--runs=/r",
        "--to=forward",
        "--steps",
        "2",
        "--",
        "trainer.nnodes=1",
    ]
    assert _words(asked, Path("/c"), Path("/r"), None)[3:] == asked
