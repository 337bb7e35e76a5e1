"""Running a child: its output is kept, and nothing of it is left however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from harness.diagnose.news import News
from harness.errors import DiskFullError, RecordError
from harness.evidence import output, processes
from harness.evidence.output import Limits

# A climb in small: runs a child that starts a helper, both deaf to SIGINT and SIGTERM.
Python = Callable[..., list[str]]

CLIMB = r'''
import os
from pathlib import Path
from harness.errors import InterruptedRunError
from harness.evidence import output
deaf = """
import signal, time
for signum in (signal.SIGINT, signal.SIGTERM):
    signal.signal(signum, signal.SIG_IGN)
print("deaf", flush=True)
time.sleep(300)
"""
helper = f"subprocess.Popen([sys.executable, '-c', {deaf!r}], start_new_session=True)"
child = f"import subprocess, sys\n{helper}\n{deaf}"
environment = {**os.environ, "VERLOCK_RUN_ID": sys.argv[2]}
try:
    output.run([sys.executable, "-c", child], log=Path(sys.argv[1]), env=environment, grace=1.0)
except InterruptedRunError as error:
    print(error)
    sys.exit(error.exit_code)
'''


def wait_for(condition: object, *, seconds: float = 15.0) -> None:
    assert callable(condition)
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


def test_output_is_appended_merged_and_passed_on(python: Python, tmp_path: Path) -> None:
    log = tmp_path / "output.log"
    log.write_text("before\n")
    code = r"""
import os
os.write(1, b"one\n")
os.write(2, "zwei \u00fc\n".encode())
os.write(1, b"1%\r50%\r99%\nend")
sys.exit(3)
"""
    lines: list[str] = []
    done = output.run(python(code), log=log, on_line=lines.append)
    assert (done.exit_code, done.timed_out, done.left_over) == (3, False, ())
    assert log.read_bytes().decode() == "before\none\nzwei ü\n1%\r50%\r99%\nend"
    assert lines == ["one", "zwei ü", "99%", "end"]


def test_a_large_output_is_complete(python: Python, tmp_path: Path) -> None:
    log, count = tmp_path / "output.log", [0]
    code = "for n in range(100_000): print(n, 'x' * 50)"
    output.run(python(code), log=log, on_line=lambda _line: count.__setitem__(0, count[0] + 1))
    assert count[0] == 100_000 == log.read_bytes().count(b"\n")


def test_a_daemon_that_keeps_the_pipe_does_not_hold_us(python: Python, tmp_path: Path) -> None:
    code = "import subprocess; subprocess.Popen(['sleep', '60'], start_new_session=True); print('done')"
    run_id = f"daemon-{os.getpid()}"
    began = time.monotonic()
    environment = {**os.environ, processes.RUN_VARIABLE: run_id}
    done = output.run(python(code), log=tmp_path / "output.log", env=environment, grace=0.5)
    assert done.exit_code == 0
    assert [left.title for left in done.left_over] == ["sleep"]
    assert time.monotonic() - began < 10


def test_a_child_that_takes_too_long(python: Python, tmp_path: Path) -> None:
    done = output.run(
        python("import time; time.sleep(60)"),
        log=tmp_path / "o",
        limits=output.Limits(timeout=0.5),
        grace=2.0,
    )
    assert done.timed_out
    assert done.exit_code != 0
    assert done.seconds < 10


def test_a_child_that_said_that_it_cannot_go_on_is_not_waited_for(python: Python, tmp_path: Path) -> None:
    heard: list[str] = []
    looked: list[str] = []
    done = output.run(
        python("import time; print('a batch is lost', flush=True); time.sleep(60)"),
        log=tmp_path / "o",
        on_line=heard.append,
        limits=Limits(lost=lambda: heard[0] if heard else None, on_expiry=looked.append),
        grace=2.0,
    )
    assert done.timed_out
    assert done.seconds < 30
    assert looked == ["a batch is lost"]


STANDS_STILL = """
import datetime, sys, time
for _ in range(40):
    print(f"{datetime.datetime.now():%Y-%m-%d %H:%M:%S} running: 8, finished: 0", end="", flush=True)
    time.sleep(0.05)
    print(flush=True)  # the end of a line comes by itself, as from an unbuffered Python
    time.sleep(0.05)
"""


@pytest.mark.parametrize(("news", "timed_out"), [(News, True), (lambda: None, False)])
def test_a_child_that_only_repeats_itself_is_silent(
    python: Python, tmp_path: Path, news: Callable[[], Callable[[str], bool] | None], timed_out: bool
) -> None:
    """Without the check of what is new, the same child is heard to its end."""
    limits = Limits(silence=1.5, news=news())
    finished = output.run(python(STANDS_STILL), log=tmp_path / "output.log", limits=limits, grace=1.0)
    assert finished.timed_out is timed_out


def test_a_command_that_is_not_there(tmp_path: Path) -> None:
    done = output.run(["/no/such/program"], log=tmp_path / "o")
    assert done.exit_code == 127
    assert "cannot start /no/such/program" in (tmp_path / "o").read_text()


def test_a_full_disk_ends_the_child(python: Python) -> None:
    before = psutil.Process().children()  # a fixture's of another module
    with pytest.raises(DiskFullError, match="write the output log"):
        output.run(
            python("import time; print('x', flush=True); time.sleep(60)"), log=Path("/dev/full"), grace=1.0
        )
    later = [child for child in psutil.Process().children() if child not in before]
    assert not [child for child in later if child.status() != psutil.STATUS_ZOMBIE]


def test_a_log_that_cannot_be_written(python: Python, tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="cannot write the output log"):
        output.run(python("pass"), log=tmp_path)


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_a_deaf_tree(python: Python, tmp_path: Path, signum: int) -> None:
    log, run_id = tmp_path / "output.log", f"ctrlc-{os.getpid()}-{signum}"
    with subprocess.Popen(python(CLIMB, log, run_id), stdout=subprocess.PIPE, text=True) as climb:
        wait_for(lambda: log.exists() and log.read_text().count("deaf") == 2)
        climb.send_signal(signum)
        said, _ = climb.communicate(timeout=30)
    assert climb.returncode == 130
    assert signal.Signals(signum).name in said
    assert processes.find(run_id) == []


@pytest.mark.skipif(
    sys.platform != "linux", reason="the kernel's tie is Linux's; elsewhere the next climb sweeps"
)
def test_a_killed_climb_takes_its_child_along(python: Python, tmp_path: Path) -> None:
    log, run_id = tmp_path / "output.log", f"killed-{os.getpid()}"
    with subprocess.Popen(python(CLIMB, log, run_id)) as climb:
        wait_for(lambda: log.exists() and log.read_text().count("deaf") == 2)
        trainer = psutil.Process(climb.pid).children()
        climb.kill()
    _gone, alive = psutil.wait_procs(trainer, timeout=5)
    assert not alive
    assert len(processes.sweep(run_id, grace=0.3)) == 1  # The helper in a session of its own.
