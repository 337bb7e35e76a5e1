"""The stacks of a run's processes, asked for from outside, whatever the process does."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

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
    monkeypatch.setenv("PATH", "/nowhere")  # without py-spy
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


def test_a_process_that_did_not_register_lives_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGUSR1 would end it: it is left alone, and the record says that it told nothing."""
    monkeypatch.setenv("PATH", "/nowhere")
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
