"""The stacks of a run's processes, asked for from outside, whatever the process does."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from harness.evidence import stacks

ROOT = Path(__file__).parents[2]
# Stuck in C without the interpreter's lock, in Python code, and before it could register.
STUCK = {
    "sleeps": "def in_sleep():\n    import time\n    time.sleep(600)\nready()\nin_sleep()",
    "spins": "def in_loop():\n    while True:\n        pass\nready()\nin_loop()",
}
HEAD = (
    "import pathlib, sys\nfrom harness.evidence import stacks\n"
    "def ready():\n    stacks.register()\n    pathlib.Path(sys.argv[1]).touch()\n"
)


def started(code: str, folder: Path, run_id: str) -> subprocess.Popen[bytes]:
    environ = {**os.environ, "VERLOCK_RUN_ID": run_id, "VERLOCK_EVENTS": str(folder / "events.jsonl")}
    ready = folder / "ready"
    child = subprocess.Popen([sys.executable, "-c", HEAD + code, str(ready)], env=environ, cwd=ROOT)
    while not ready.exists():
        assert child.poll() is None
        time.sleep(0.05)
    return child


@pytest.mark.parametrize("how", STUCK)
def test_a_process_shows_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    monkeypatch.setattr(stacks, "_py_spy", lambda pid: None)
    child = started(STUCK[how], tmp_path, f"stacks-{how}-{os.getpid()}")
    try:
        time.sleep(0.3)
        (found,) = [s for s in stacks.collect(f"stacks-{how}-{os.getpid()}", tmp_path) if s.pid == child.pid]
    finally:
        child.kill()
        child.wait()
    assert found.told_by == "faulthandler"
    assert f" in {'in_sleep' if how == 'sleeps' else 'in_loop'}" in found.text
    kept = (tmp_path / stacks.FILE).read_text()
    assert found.text.strip() in kept
    assert not (tmp_path / stacks.FOLDER).exists()


FORKED = """
import os, signal, time
stacks.register()
if os.fork() == 0:
    for signum in (signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(signum, signal.SIG_DFL)  # as a fork server does, to be like a started process
    def in_child():
        time.sleep(600)
    ready()
    in_child()
time.sleep(600)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_process_shows_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """faulthandler remembers the parent's registration; what the child reset would end it."""
    monkeypatch.setattr(stacks, "_py_spy", lambda pid: None)
    run_id = f"stacks-forked-{os.getpid()}"
    parent = started(FORKED, tmp_path, run_id)
    (child,) = psutil.Process(parent.pid).children()
    try:
        found = {stack.pid: stack for stack in stacks.collect(run_id, tmp_path)}
        assert child.is_running()
    finally:
        child.kill()
        parent.kill()
        parent.wait()
    assert " in in_child" in found[child.pid].text
    assert found[parent.pid].told_by == "faulthandler"


def test_py_spy_is_found_beside_the_interpreter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment is used by the path of its interpreter; its programs need not be on PATH."""
    tool = tmp_path / "py-spy"
    tool.write_text("#!/bin/sh\necho Thread 1: asked for $4\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", "/nowhere:/usr/bin:/bin")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("VERLOCK_RUN_ID", f"stacks-spy-{os.getpid()}")
    with subprocess.Popen(["sleep", "60"]) as child:
        try:
            (found,) = stacks.collect(f"stacks-spy-{os.getpid()}", tmp_path)
        finally:
            child.kill()
    assert (found.told_by, found.text.strip()) == ("py-spy", f"Thread 1: asked for {child.pid}")


def test_a_process_that_did_not_register_lives_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGUSR1 would end it: it is left alone, and the record says that it told nothing."""
    monkeypatch.setattr(stacks, "_py_spy", lambda pid: None)
    code = "ready = lambda: pathlib.Path(sys.argv[1]).touch()\nready()\nimport time\ntime.sleep(600)"
    child = started(code, tmp_path, f"stacks-mute-{os.getpid()}")
    try:
        (found,) = [s for s in stacks.collect(f"stacks-mute-{os.getpid()}", tmp_path) if s.pid == child.pid]
        assert child.poll() is None
    finally:
        child.kill()
        child.wait()
    assert found.told_by == "nobody"


def test_without_a_run_nothing_is_registered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VERLOCK_EVENTS", raising=False)
    monkeypatch.chdir(tmp_path)
    stacks.register()
    assert list(tmp_path.iterdir()) == []
