"""A role that no process can have is refused, and what Ray or a user may call one is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.adapt.stops.roles import known
from harness.errors import OverrideError

SOURCE = """
class TaskRunnerV1:
    class Inner: ...

@ray.remote(num_cpus=1)
def score_remotely(rows): ...

def helper(): ...
"""


@pytest.fixture
def places(tmp_path: Path) -> list[Path]:
    (tmp_path / "verl").mkdir()
    (tmp_path / "verl" / "main.py").write_text(SOURCE)
    (tmp_path / "mine.py").write_text("class MyLoop: ...")
    return [tmp_path / "verl", tmp_path / "mine.py", tmp_path / "absent.py.d"][:2]


@pytest.mark.parametrize(
    "role", ["", "harness", "WorkerDict", "taskrunner", "Inner", "score_remotely", "MyLoop", "ray::Task"]
)
def test_a_role_that_a_process_can_have(places: list[Path], role: str) -> None:
    known(role, places)


@pytest.mark.parametrize(
    ("role", "todo"),
    [
        ("Nobody", "leave @ROLE out"),
        ("helper", "leave @ROLE out"),
        ("TaskRuner", "the nearest: TaskRunnerV1"),
    ],
)
def test_a_role_of_nobody_is_refused(places: list[Path], role: str, todo: str) -> None:
    with pytest.raises(OverrideError, match=f"no process has the role {role}") as told:
        known(role, places)
    assert (told.value.problems[0].todo or "").startswith(todo)
