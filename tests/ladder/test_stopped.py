"""``--break`` and ``--debugpy`` are judged where verl and debugpy are, not on the host that has neither."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from harness.errors import OverrideError, ToolMissingError
from harness.ladder import command, stopped

ASKED = {"stop_at": None, "debugpy": None, "pdb": False}


@pytest.fixture
def on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `.nox/smoke-cpu` is: typer and the harness, without torch, verl, debugpy."""
    found = importlib.util.find_spec
    absent = {"verl", "debugpy"}
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *a: None if name in absent else found(name, *a)
    )


@pytest.mark.usefixtures("on_the_host")
@pytest.mark.parametrize(
    ("text", "role"),
    [
        (None, "WorkerDict"),
        ("ActorRolloutRefWorker.update_actor@WorkerDict:1", None),
        ("verl/trainer/ppo/core_algos.py:1342", None),
        (f"{__file__}:8", "harness"),
    ],
)
def test_the_host_leaves_it_to_the_environment_that_it_enters(text: str | None, role: str | None) -> None:
    stopped.place(text, role, pdb=False, checkout=None)


@pytest.mark.usefixtures("on_the_host")
def test_the_users_own_file_is_judged_at_once(tmp_path: Path) -> None:
    (tmp_path / "judge.py").write_text("x = 1\n")
    with pytest.raises(OverrideError, match="no statement begins"):
        stopped.place(f"{tmp_path / 'judge.py'}:9", None, pdb=False, checkout=None)


@pytest.mark.usefixtures("on_the_host")
def test_an_environment_without_debugpy_says_where_it_is(tmp_path: Path) -> None:
    (tmp_path / "judge.py").write_text("x = 1\n")
    place = stopped.place(f"{tmp_path / 'judge.py'}:1", "harness", pdb=False, checkout=None)
    assert place is not None
    with pytest.raises(ToolMissingError, match="debugpy is not in this environment") as told:
        stopped.usable(place)
    assert "--pdb" in str(told.value.problems[0].todo)


def test_where_both_are_a_wrong_class_and_a_wrong_role_are_refused() -> None:
    with pytest.raises(OverrideError, match="no class Nowhere"):
        stopped.place("Nowhere", None, pdb=False, checkout=None)
    with pytest.raises(OverrideError, match="no process has the role Nobody"):
        stopped.place(f"{__file__}:8@Nobody:7", None, pdb=False, checkout=None)
    stopped.usable(stopped.place(f"{__file__}:8", "TaskRunner", pdb=False, checkout=None))


def test_a_list_of_words_has_no_empty_one() -> None:
    with pytest.raises(OverrideError) as told:
        command.parse(
            profile="cpu",
            trainer=None,
            without_patches=(),
            overrides=(),
            verl_source=None,
            first="env",
            last="ppo",
            rollout="hf",
            algorithm="ppo",
            checkpoint="disk",
            log_level="nonsense",
            **ASKED,
        )
    (problem,) = told.value.problems
    assert (problem.what, problem.todo) == (
        "--log-level nonsense is unknown",
        "one of: debug, info, warning, error",
    )
