"""One change is made whole with what follows from it, or nothing is written."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from harness.build.update import command, trial
from harness.build.update.changes import Change
from harness.build.update.edits import Edit
from harness.console import Output
from harness.errors import UpdateError
from harness.profiles import load, names, root

QUIET = Output(as_json=True)
COMMIT = "0" * 40


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout of its own, with one workflow."""
    for part in ("profiles", "docker"):
        shutil.copytree(root() / part, tmp_path / part)
    shutil.copy(root() / "pyproject.toml", tmp_path)
    workflows = tmp_path / ".github" / "workflows"
    workflows.mkdir(parents=True)
    (workflows / "ci.yml").write_text(f"- uses: actions/checkout@{COMMIT} # v4.2.0\n")
    monkeypatch.setenv("VERLOCK_ROOT", str(tmp_path))
    return tmp_path


def texts(place: Path) -> dict[str, str]:
    return {str(p.relative_to(place)): p.read_text() for p in sorted(place.rglob("*")) if p.is_file()}


def action(after: str) -> Change:
    edit = Edit(file=".github/workflows/ci.yml", line=1, before=f"{COMMIT} # v4.2.0", after=after)
    return Change(name="actions/checkout", current="v4.2.0", proposed="v4.3.0", edits=(edit,))


def test_a_change_touches_the_file_that_it_names_and_no_other(checkout: Path) -> None:
    before = texts(checkout)
    command._write(load("cpu"), action("1 # v4.3.0"), QUIET)
    after = texts(checkout)
    assert {name for name in after if after[name] != before.get(name)} == {".github/workflows/ci.yml"}
    assert after[".github/workflows/ci.yml"] == "- uses: actions/checkout@1 # v4.3.0\n"


def test_a_pin_that_cannot_be_locked_writes_nothing(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("UV_CACHE_DIR", str(checkout.parent / "no-cache"))
    before = texts(checkout)
    line = 1 + next(
        n
        for n, text in enumerate((checkout / "profiles" / "_base.yaml").read_text().splitlines())
        if text.startswith("  verl: ")
    )
    edit = Edit(file="profiles/_base.yaml", line=line, before="0.9.1", after="99.0")
    change = Change(name="verl", current="0.9.1", proposed="99.0", edits=(edit,))
    with pytest.raises(UpdateError, match=r"verl 99\.0 cannot be taken"):
        command._write(load("cpu"), change, QUIET)
    assert texts(checkout) == before


def test_a_file_that_changes_meanwhile_is_not_overwritten(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = command.remake

    def slow(*arguments: object) -> tuple[int, tuple[str, ...]]:
        (checkout / "profiles" / "cpu.yaml").write_text("mine: 1\n")
        return real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(command, "remake", slow)
    with pytest.raises(UpdateError, match="changed while"):
        command._write(load("cpu"), action("1 # v4.3.0"), QUIET)
    assert (checkout / "profiles" / "cpu.yaml").read_text() == "mine: 1\n"
    assert "v4.2.0" in (checkout / ".github" / "workflows" / "ci.yml").read_text()


def test_a_name_without_anything_newer_says_what_there_is(checkout: Path) -> None:
    with pytest.raises(UpdateError, match="one of: actions/checkout"):
        command._named("numpy", [action("1 # v4.3.0")])


def test_profiles_that_extend_another_are_locked_with_it() -> None:
    change = action("1 # v4.3.0")
    assert trial.concerned(load("cpu"), change) == ["cpu", "mac-m4-16g"]
    assert trial.concerned(load("a100"), change) == ["a100"]
    shared = Edit(file="profiles/_base.yaml", line=1, before="a", after="b")
    assert trial.concerned(load("a100"), replace(change, edits=(shared,))) == list(names())


def test_a_lock_s_difference_is_seen_in_the_copy(checkout: Path) -> None:
    with trial.copied(action("1 # v4.3.0")) as place:
        path = place / "docker" / "rendered" / "cpu" / "requirements.lock"
        path.write_text(path.read_text().replace("ray==2.59.0", "ray==2.60.0"))
        moves = trial._moved(place, load("cpu"))
    assert [move.line() for move in moves["requirements.lock"]] == ["ray 2.59.0 -> 2.60.0"]
    assert set(moves) == {"requirements.lock"}
