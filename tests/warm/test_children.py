"""Forked children are like started processes: in all that differs between processes, and in nothing else."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from harness.evidence import events
from harness.evidence.processes import RUN_VARIABLE
from harness.evidence.titles import title

CHILDREN = 50


def test_fifty_children_share_no_id_and_no_random_state(served: Any, tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: served.probe(cwd=tmp_path), range(CHILDREN)))
    ids = [made for child in found for made in child["ids"]]
    assert len(set(ids)) == 3 * CHILDREN
    for generator in ("random", "numpy", "torch"):
        assert len({child[generator] for child in found}) == CHILDREN
    assert len({tuple(child["deterministic"]) for child in found}) == 1
    assert {child["parent"] for child in found} == {served.fork.pid}


def test_a_child_is_what_a_started_process_is(served: Any, tmp_path: Path) -> None:
    forked = served.probe("--flag", "two words", cwd=tmp_path, PROBE="1")
    started = json.loads(
        subprocess.run(
            # In the background a shell has the tests ignore SIGINT and SIGQUIT, and nohup SIGHUP.
            ["env", "--default-signal=INT,QUIT,HUP", sys.executable, "-m", "probe", "--flag", "two words"],
            env={**served.environment, **served.fork.variables(), "PROBE": "1"},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.splitlines()[-1]
    )
    for same in (
        *("arguments", "main", "cwd", "first_path", "title", "environment", "c_environment", "signals"),
        *("blocked", "threads", "torch_threads", "nofile", "deterministic"),
    ):
        assert forked[same] == started[same], same
    # The imports of the server hold some (Arrow's and torch's own), its sockets must not be among them.
    assert set(forked["descriptors"]).isdisjoint({"socket", "anon_inode"})


def test_a_child_leads_its_own_group_and_is_found_by_its_run(served: Any, tmp_path: Path) -> None:
    child = served.probe(cwd=tmp_path)
    assert child["pid"] == child["group"] == child["session"]
    assert child["shown_run"] == f"{RUN_VARIABLE}={served.environment[RUN_VARIABLE]}"
    assert title(child["title"]) == "probe"


def test_each_child_proves_its_own_activation(served: Any, tmp_path: Path) -> None:
    before = len(events.read(served.events))
    pids = {served.probe(cwd=tmp_path)["pid"] for _ in range(2)}
    seen = events.read(served.events)[before:]
    assert {e["pid"] for e in seen if e["kind"] == "activated"} == pids
    assert {e["patch"] for e in seen if e["kind"] == "patch" and e["pid"] in pids} >= {"engine-seed"}
    assert served.fork.pid not in {e["pid"] for e in events.read(served.events) if e["kind"] == "activated"}


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("exit", "0"), 0),
        (("exit", "7"), 7),
        (("raise", "on purpose"), 1),
        (("die", "9"), -9),
        (("die", "15"), -15),
    ],
)
def test_a_stand_in_ends_as_its_child_ends(served: Any, arguments: tuple[str, str], code: int) -> None:
    child = served.start("probe", *arguments)
    _stdout, stderr = child.communicate(timeout=60)
    assert child.returncode == code
    assert ("RuntimeError: on purpose" in stderr) == (arguments[0] == "raise")


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_reaches_the_child(served: Any, signum: signal.Signals) -> None:
    child = served.start("probe", "sleep", "60")
    assert child.stdout is not None
    assert child.stdout.readline() == "asleep\n"
    child.send_signal(signum)
    _stdout, stderr = child.communicate(timeout=20)
    assert child.returncode == -signum
    assert ("KeyboardInterrupt" in stderr) == (signum == signal.SIGINT)


@pytest.mark.parametrize(
    ("name", "value"), [("OMP_NUM_THREADS", "2"), ("PYTHONHASHSEED", "3"), ("LD_LIBRARY_PATH", "/nowhere")]
)
def test_what_is_read_at_import_makes_a_normal_start(
    served: Any, tmp_path: Path, name: str, value: str
) -> None:
    child = served.start("probe", cwd=tmp_path, **{name: value})
    stdout, stderr = child.communicate(timeout=120)
    assert stderr.startswith(f"verlock: started normally, not forked: it needs other values of {name}"), (
        stderr
    )
    found = json.loads(stdout)
    assert found["pid"] == child.pid
    assert found["torch_threads"] == (2 if name == "OMP_NUM_THREADS" else 1)


def test_another_user_is_not_served(served: Any) -> None:
    from harness.warm import wire

    with wire.connect(served.fork.address, timeout=5) as connection:
        assert wire.peer(connection) == (served.fork.pid, os.getuid())


def test_a_message_that_is_none_leaves_the_server_alive(served: Any, tmp_path: Path) -> None:
    from harness.warm import wire

    for sent in (b"", b"\xff\xff\xff\xff", b"\0\0\0\x02{}"):
        with wire.connect(served.fork.address, timeout=5) as connection:
            connection.sendall(sent)
    assert served.probe(cwd=tmp_path)["parent"] == served.fork.pid
