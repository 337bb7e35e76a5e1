"""The command line as scripts meet it: one JSON document for every end, a misuse included."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

VERLOCK = (sys.executable, "-m", "harness")

MISUSES = {
    "an option that does not exist": (("profiles", "--nope"), "--nope"),
    "a value of the wrong kind": (("climb", "--steps", "many"), "--steps"),
    "a value out of range": (("climb", "--steps", "0"), "--steps"),
    "a missing argument": (("audit",), "profile"),
    "no such command": (("clmb",), "clmb"),
    "options that exclude each other": (("audit", "cpu", "--torch", "2.8.0", "--wheel", "x"), "exclude"),
}


@pytest.mark.parametrize("name", MISUSES)
def test_a_misuse_is_one_document_with_exit_code_2(name: str) -> None:
    words, named = MISUSES[name]
    done = subprocess.run([*VERLOCK, *words, "--json"], capture_output=True, text=True, check=False)
    error = json.loads(done.stdout)["error"]
    assert done.returncode == error["exit_code"] == 2
    assert named in error["problems"][0]["what"]


def test_a_misuse_is_told_to_people_on_standard_error() -> None:
    done = subprocess.run([*VERLOCK, "profiles", "--nope"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "--nope" in done.stderr
    assert "Traceback" not in done.stderr


def test_help_and_version_end_well() -> None:
    for word, said in {"--help": "climb", "--version": "verlock"}.items():
        done = subprocess.run([*VERLOCK, word], capture_output=True, text=True, check=False)
        assert done.returncode == 0
        assert said in done.stdout


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_being_stopped_is_told_and_leaves_nothing_half_made(tmp_path: Path, signum: int) -> None:
    command = [*VERLOCK, "env", "cpu", "--fresh", "--json"]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "VERLOCK_ENVS": str(tmp_path)},
        # Whoever runs the tests under nohup ignores SIGHUP, and so would this process.
        preexec_fn=lambda: signal.signal(signum, signal.SIG_DFL),  # noqa: PLW1509 - no threads here
    )
    assert process.stderr is not None
    assert "making the environment" in process.stderr.readline()
    process.send_signal(signum)
    told, _ = process.communicate()
    assert process.returncode == 130
    assert json.loads(told)["error"]["type"] == "InterruptedRunError"
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]


HELD = """
import threading
from harness import cli
from harness.console import Output
from harness.errors import InterruptedRunError
threading.Thread(target=threading.Event().wait, daemon={daemon}).start()
print("begun", flush=True)
assert cli._held_up() is not {daemon}
cli._end(Output(), InterruptedRunError("the climb was ended by SIGTERM"))
"""


@pytest.mark.parametrize("daemon", [True, False])
def test_a_thread_that_waits_for_ever_does_not_hold_up_an_end_that_was_asked_for(daemon: bool) -> None:
    """As one does that waits for a debugger."""
    done = subprocess.run(
        [sys.executable, "-c", HELD.format(daemon=daemon)],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert (done.returncode, done.stdout) == (130, "begun\n"), done.stderr
    assert "ended by SIGTERM" in done.stderr
