"""What a watch rests on: which saves count, which rungs come next, and that no child has old code.

The whole command, with real climbs, is in tests/acceptance/test_issue_6_watch.py.
"""

from __future__ import annotations

import importlib.util
import io
import os
import queue
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from harness.console import Output
from harness.evidence.processes import RUN_VARIABLE, Members
from harness.evidence.record import new_id
from harness.warm import loop, standin, wire
from harness.warm.broken import failure_of
from harness.warm.changes import Changes, Saved, Watched, written
from harness.warm.kept import Base, Generation
from harness.warm.loop import Asked, Loop
from harness.warm.plan import Plan

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forking needs Linux")
HERE = Path(__file__).parent
ALGORITHMS = "verl/trainer/ppo/core_algos.py"


@pytest.mark.parametrize(
    ("only", "ends", "then"),
    [
        (None, [("forward", False)], ["forward", "forward"]),
        (None, [("forward", False), ("forward", True)], ["rollout", "ppo"]),
        (None, [("forward", False), ("forward", False)], ["forward", "forward"]),
        (None, [("ppo", True)], ["ppo", "ppo"]),
        (None, [("forward", False), ("forward", True), ("reward", False)], ["reward", "reward"]),
        (None, [(None, False)], ["env", "ppo"]),
        ("forward", [("forward", True)], ["forward", "forward"]),
        ("forward", [("forward", False)], ["forward", "forward"]),
    ],
)
def test_the_next_climb_is_what_failed_and_then_upwards(
    only: Any, ends: list[tuple[str | None, bool]], then: list[str]
) -> None:
    plan = Plan(only=only, last="ppo")
    for rung, passed in ends:
        plan.ended(rung, passed=passed)
    assert [plan.words()[1], plan.words()[3]] == then
    assert plan.goes_on == (ends[-1][1] and then[0] != ends[-1][0])
    assert plan.trains == (then[1] == "ppo")


@pytest.mark.parametrize(
    ("path", "counts"),
    [
        ("/v/verl/trainer/ppo/core_algos.py", True),
        ("/v/verl/trainer/config/ppo_trainer.yaml", True),
        ("/v/verl/trainer/ppo/__pycache__/core_algos.cpython-311.pyc", False),
        ("/v/verl/trainer/ppo/.core_algos.py.swp", False),
        ("/v/verl/trainer/ppo/.#core_algos.py", False),
        ("/v/verl/trainer/ppo/core_algos.py~", False),
        ("/v/verl/trainer/ppo/4913", False),
        ("/v/.git/index", False),
        ("/r/reward.py", True),
        ("/r/other.py", False),
        ("/m/model.safetensors", True),
        ("/m/.cache", False),
        ("/m/below/x.bin", False),
    ],
)
def test_saves_that_count(path: str, counts: bool) -> None:
    watched = Watched(trees=(Path("/v/verl"),), files=(Path("/r/reward.py"), Path("/m")))
    assert watched.counts(Path(path)) == counts
    assert watched.code([Path(path)]) == path.startswith("/v/verl")


def test_a_save_is_as_old_as_the_file_unless_that_cannot_be(tmp_path: Path) -> None:
    file = tmp_path / "x"
    file.touch()
    for age, found in ((1.5, 98.5), (3600.0, 100.0), (-60.0, 100.0)):
        os.utime(file, (1000 - age, 1000 - age))
        assert written([file], wall=1000.0, now=100.0) == pytest.approx(found)
    assert written([tmp_path / "gone"], wall=1000.0, now=100.0) == 100.0


def test_a_write_beside_and_a_rename_is_one_save(tmp_path: Path) -> None:
    """As vim and most editors save. The one after it is seen too: the file is another one then."""
    pytest.importorskip("watchfiles", reason="it is a tool of the host side")
    reward, other = tmp_path / "reward.py", tmp_path / "notes.txt"
    reward.write_text("a")
    found: queue.Queue[Saved] = queue.Queue()
    with Changes(Watched(files=(reward,)), found):
        time.sleep(0.5)  # until the watch is set up
        for text in ("b", "c"):
            other.write_text(text)
            (tmp_path / ".reward.py.new").write_text(text)
            (tmp_path / ".reward.py.new").replace(reward)
            assert found.get(timeout=20).paths == {reward}
            time.sleep(0.3)
        assert found.empty()


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The installed verl, copied, with one line more."""
    pytest.importorskip("verl", reason="verl comes with the lock")
    (verl,) = importlib.util.find_spec("verl").submodule_search_locations  # type: ignore[union-attr,misc]
    folder = tmp_path_factory.mktemp("checkout")
    shutil.copytree(verl, folder / "verl", ignore=shutil.ignore_patterns("__pycache__"))
    with (folder / ALGORITHMS).open("a") as file:
        file.write("\nPEEK = -1\n")
    return folder


@pytest.fixture(scope="module")
def base(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Base, dict[str, str]]]:
    """A base that has learnt what to keep, and what its children are started with."""
    sys.path.insert(0, str(HERE))
    try:
        from conftest import environment
    finally:
        sys.path.remove(str(HERE))
    folder = tmp_path_factory.mktemp("base")
    environ = environment(folder) | {
        RUN_VARIABLE: new_id(),
        "PYTHONPATH": f"{checkout}:{HERE.parents[1]}:{HERE}",
    }
    base = Base(Path(sys.executable), environ, folder)
    assert base.problem is None
    yield base, environ
    base.close()
    assert not Members(environ[RUN_VARIABLE]).find()


def peek(environ: dict[str, str], base: Base, **variables: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(standin.__file__), "-P", "-m", "peek"],
        env={**environ, wire.ADDRESS_VARIABLE: base.runs, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_each_generation_has_the_code_as_it_was_saved(
    base: tuple[Base, dict[str, str]], checkout: Path
) -> None:
    """A sign flipped twice within a second leaves size and second of the file as they were."""
    kept, environ = base
    file = checkout / ALGORITHMS
    text, stamp = file.read_text(), file.stat().st_mtime
    took = []
    for sign in "-+-+":
        file.write_text(text.replace("PEEK = -1", f"PEEK = {sign}1"))
        os.utime(file, (stamp, stamp))
        generation = kept.generation()
        assert generation.error is None, generation.stack
        out, err = peek(environ, kept).communicate(timeout=60)
        assert out.split() == [str(int(f"{sign}1")), str(generation.pid)], err
        took.append(generation.seconds)
    file.write_text(text)
    assert not list(checkout.rglob("__pycache__"))  # nothing is written into what is the user's
    # The first imports all, the others verl alone: 11 s and 0.4 s measured.
    assert min(took[1:]) < took[0] / 2


def test_code_that_cannot_be_imported_is_a_verdict_with_its_place(
    base: tuple[Base, dict[str, str]], checkout: Path
) -> None:
    kept, environ = base
    file = checkout / ALGORITHMS
    text = file.read_text()
    for added, said in (
        ("def (:\n", "SyntaxError: invalid syntax"),
        ("import no_such_module\n", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("raise RuntimeError('on purpose')\n", "RuntimeError: on purpose"),
    ):
        file.write_text(text + added)
        generation = kept.generation()
        failure, code = failure_of(generation)
        assert said in failure.cause
        assert f"{file}:{len(text.splitlines()) + 1}: " in failure.cause
        assert code == 20
    file.write_text(text)
    assert kept.generation().error is None
    assert peek(environ, kept).communicate(timeout=60)[0].startswith("-1")


def test_a_child_is_found_by_the_run_that_it_is_for(base: tuple[Base, dict[str, str]]) -> None:
    """Not by the id that its server was started with: a sweep would leave it, or take another run's."""
    kept, environ = base
    kept.generation()
    run_id = new_id()
    child = peek(environ, kept, PEEK_SECONDS="60", **{RUN_VARIABLE: run_id})
    assert child.stdout is not None
    assert child.stdout.readline()
    found = {process.pid for process in Members(run_id).find()}
    assert child.pid in found  # the stand-in
    assert len(found) == 2  # and its child
    child.kill()
    child.communicate(timeout=20)
    other = peek(environ, kept, **{RUN_VARIABLE: "short"})
    _out, err = other.communicate(timeout=120)
    assert "started normally, not forked: there is no room to show its VERLOCK_RUN_ID" in err


def test_a_new_generation_ends_the_children_of_the_old_one(base: tuple[Base, dict[str, str]]) -> None:
    kept, environ = base
    kept.generation()
    child = peek(environ, kept, PEEK_SECONDS="300")
    assert child.stdout is not None
    assert child.stdout.readline()
    kept.generation()
    child.communicate(timeout=20)
    assert child.returncode == -9


def test_workers_get_the_environment_of_the_run_and_keep_rays(base: tuple[Base, dict[str, str]]) -> None:
    from harness.warm.child import Request
    from harness.warm.server import Server

    server = Server.__new__(Server)
    server._run = {"VERLOCK_EVENTS": "/new", "RAY_ADDRESS": "theirs"}
    worker = Request(
        arguments=["--worker"],
        environment={"VERLOCK_EVENTS": "/old", "RAY_ADDRESS": "own", "RAY_JOB_ID": "1"},
        folder="/",
        limits={},
        oom_score=0,
    )
    assert server._of_run(worker).environment == {
        "VERLOCK_EVENTS": "/new",
        "RAY_ADDRESS": "own",
        "RAY_JOB_ID": "1",
    }


# --- an import that comes to no end ---


class Hanging:
    """A base whose first import does not end until the base is closed."""

    made: ClassVar[list[Hanging]] = []

    def __init__(self, *_: object) -> None:
        self.made.append(self)
        self.closed, self.alive, self.problem = threading.Event(), True, None

    def generation(self) -> Generation:
        if self is self.made[0]:
            assert self.closed.wait(30)
        return Generation(pid=len(self.made))

    def close(self) -> None:
        self.closed.set()


@pytest.fixture
def importing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Loop:
    """A loop whose first import hangs."""
    Hanging.made.clear()
    monkeypatch.setattr(loop, "Base", Hanging)
    monkeypatch.setattr(loop, "IMPORT_SECONDS", 1.0)
    monkeypatch.setattr(loop, "FIRST_AFTER_SAVE_SECONDS", 0.2)
    asked = Asked(python=Path(sys.executable), environ={}, words=(), source=tmp_path, ray=None)
    watched = Watched(trees=(tmp_path,))
    return Loop(asked, Plan(only="forward", last="ppo"), watched, Output(file=io.StringIO()), tmp_path)


def test_a_save_ends_an_import_that_hangs(importing: Loop, tmp_path: Path) -> None:
    saved = Saved(paths=frozenset({tmp_path / "a.py"}), when=time.monotonic())
    importing.events.put(saved)
    assert importing._renew([]) == (True, saved)
    first, second = Hanging.made
    assert first.closed.is_set()
    assert importing._generation is None
    # The next one is of the new base, whatever the old one says at its end.
    assert importing._renew([]) == (True, None)
    assert importing._generation == Generation(pid=2)
    assert not second.closed.is_set()


def test_an_import_that_hangs_is_a_verdict_at_the_deadline(importing: Loop) -> None:
    assert importing._renew([]) == (True, None)
    generation = importing._generation
    assert generation is not None
    failure, code = failure_of(generation)
    assert code == 20
    assert "importing verl did not come to an end within 1 s" in failure.cause
    assert Hanging.made[0].closed.is_set()


def test_a_save_does_not_end_an_import_that_ends_by_itself(importing: Loop, tmp_path: Path) -> None:
    threading.Timer(0.05, Hanging.made[0].closed.set).start()
    saved = Saved(paths=frozenset({tmp_path / "a.py"}), when=time.monotonic())
    importing.events.put(saved)
    assert importing._renew([]) == (True, saved)
    assert importing._generation == Generation(pid=1)
    assert len(Hanging.made) == 1
