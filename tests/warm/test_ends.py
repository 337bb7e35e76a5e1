"""Whoever is killed, nothing is left: the child, its stand-in, the server."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from harness.evidence.processes import Members
from harness.warm import ray_hooks


def _gone(pid: int, seconds: float = 10) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.05)
    return False


def _asleep(served: Any) -> tuple[subprocess.Popen[str], int]:
    stand_in = served.start("probe", "sleep", "300")
    assert stand_in.stdout is not None
    assert stand_in.stdout.readline() == "asleep\n"
    (child,) = psutil.Process(served.fork.pid).children()
    return stand_in, child.pid


def test_a_killed_stand_in_takes_its_child_along(served: Any, tmp_path: Path) -> None:
    stand_in, child = _asleep(served)
    stand_in.kill()
    assert _gone(child)
    stand_in.communicate(timeout=10)
    assert served.probe(cwd=tmp_path)["parent"] == served.fork.pid


def test_a_killed_child_ends_its_stand_in(served: Any) -> None:
    stand_in, child = _asleep(served)
    os.kill(child, signal.SIGKILL)
    stand_in.communicate(timeout=10)
    assert stand_in.returncode == -signal.SIGKILL


def test_a_killed_server_ends_its_children_and_is_told(own_served: Any) -> None:
    stand_in, child = _asleep(own_served)
    os.kill(own_served.fork.pid, signal.SIGKILL)
    assert _gone(child)
    _stdout, stderr = stand_in.communicate(timeout=10)
    assert stand_in.returncode == -signal.SIGKILL
    assert "the fork server died" in stderr


def test_without_a_server_a_program_starts_normally_and_says_so(own_served: Any, tmp_path: Path) -> None:
    own_served.fork.stop()
    child = own_served.start("probe", "exit", "5", cwd=tmp_path)
    _stdout, stderr = child.communicate(timeout=60)
    assert child.returncode == 5
    assert stderr.startswith("verlock: started normally, not forked: ")


def test_a_killed_climb_takes_server_and_children_along(tmp_path: Path) -> None:
    script = (
        "import sys, time; sys.path.insert(0, sys.argv[1])\n"
        "from pathlib import Path\n"
        "import conftest\n"
        "for served in conftest.serve(Path(sys.argv[2])):\n"
        "    child = served.start('probe', 'sleep', '300')\n"
        "    child.stdout.readline()\n"
        "    print(served.environment['VERLOCK_RUN_ID'], flush=True)\n"
        "    time.sleep(300)\n"
    )
    here = str(Path(__file__).parent)
    with subprocess.Popen(
        [sys.executable, "-c", script, here, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as climb:
        assert climb.stdout is not None
        run_id = climb.stdout.readline().strip()
        found = Members(run_id).find()
        assert len(found) >= 3  # server, child, stand-in
        climb.kill()
    assert all(_gone(process.pid) for process in found)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("ray_hooks.RAY = '1.0'", "is installed, the fork server knows 1.0"),
        ("ray_hooks._SOURCES['_private/workers/default_worker.py'] = 'x'", "is not the file of ray"),
        ("ray_hooks._PARAMETER = 'no_such'", "takes no no_such"),
    ],
)
def test_a_ray_that_is_not_known_is_not_forked(change: str, reason: str) -> None:
    script = (
        f"from harness.warm import ray_hooks; {change}\n"
        "print(ray_hooks.installed_problem() or ray_hooks.imported_problem())"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert reason in done.stdout


def test_the_locked_ray_is_known() -> None:
    assert ray_hooks.installed_problem() is None


def test_a_run_that_cannot_be_forked_says_why() -> None:
    from harness.warm.fork import problem

    fine = {"OMP_NUM_THREADS": "1", "VERL_USE_EXTERNAL_MODULES": "harness.adapt.plugin"}
    assert problem("cpu", fine) is None
    assert "cuda must not be forked" in str(problem("cuda", fine))
    assert "OMP_NUM_THREADS" in str(problem("cpu", {**fine, "OMP_NUM_THREADS": ""}))
    theirs = {**fine, "VERL_USE_EXTERNAL_MODULES": "harness.adapt.plugin,my_plugin"}
    assert "my_plugin must be imported in each process" in str(problem("cpu", theirs))
