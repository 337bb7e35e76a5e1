"""Issue 6, lifecycles: whatever ends a run, with the fork server and without, nothing of it is left.

Each test gives its climbs a temporary folder of their own, so that another climb's files are not taken for
theirs. What is looked for: processes of the run, folders and sockets, shared memory.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from harness.evidence import events
from harness.evidence.processes import Members, name_of

pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.skipif(sys.platform != "linux", reason="forking, /proc and /dev/shm are Linux's"),
]
SECONDS = 600
RUNS = 50
LIMIT = 4 << 30
RAISES = "def score(*args, **kwargs):\n    raise ValueError('on purpose')\n"
EATS = (
    "held = []\n\n\ndef score(*args, **kwargs):\n    while True:\n"
    "        held.append(bytearray(b'x') * (64 << 20))\n"
)


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where climbs of a test run and put their temporary files."""

    runs: Path
    temporary: Path
    shared: frozenset[str]

    def start(self, *words: str, before: str = "") -> subprocess.Popen[str]:
        """A climb of the ppo rung, as a user starts it; ``before`` is what its shell does first."""
        climb = [sys.executable, "-P", "-m", "harness", "climb", "--from", "ppo", "--runs", str(self.runs)]
        command = ["bash", "-c", f'{before}\nexec "$@"', "climb", *climb, *words]
        return subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            env={**os.environ, "TMPDIR": str(self.temporary)},
        )

    def trains(self, climb: subprocess.Popen[str]) -> str:
        """Wait until the second weights have reached the rollout; returns the run's id."""
        deadline = time.monotonic() + SECONDS
        path = self.runs / "latest" / "events.jsonl"
        while sum(event["kind"] == "weights" for event in events.read(path)) < 2:
            assert climb.poll() is None, climb.communicate()[0]
            assert time.monotonic() < deadline
            time.sleep(0.2)
        return str(json.loads((self.runs / "latest" / "run.json").read_text())["id"])

    def left(self) -> list[str]:
        """What is there of any run so far, after some seconds for those that are on their way out."""
        deadline = time.monotonic() + 20
        while (found := list(self._left())) and time.monotonic() < deadline:
            time.sleep(0.5)
        return found

    def _left(self) -> Iterator[str]:
        for record in self.runs.glob("2*"):
            for process in Members(record.name).find():
                yield f"process {process.pid} {name_of(process)}"
        for path in self.temporary.rglob("*"):
            # torch's own cache: one a user, for all programs, and empty where nothing is compiled.
            if not path.name.startswith("torchinductor_"):
                yield f"file {path}"
        yield from (f"shared memory {name}" for name in shared() - self.shared)
        for line in Path("/proc/net/unix").read_text().splitlines():
            if str(self.temporary) in line:
                yield f"socket {line.split()[-1]}"


def shared() -> frozenset[str]:
    return frozenset(path.name for path in Path("/dev/shm").iterdir())


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    # Short: Ray's sockets lie below it, and their paths have at most 107 bytes.
    with tempfile.TemporaryDirectory(prefix="vt-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        yield Place(runs=tmp_path / "runs", temporary=Path(folder), shared=shared())


def kill(name: str) -> Callable[[subprocess.Popen[str], str], None]:
    """SIGKILL to the process of that name, as the kernel does it when memory runs out."""

    def act(climb: subprocess.Popen[str], run_id: str) -> None:
        next(p for p in Members(run_id).find() if name in name_of(p)).kill()

    return act


def kill_climb(climb: subprocess.Popen[str], run_id: str) -> None:
    """It gets no time for anything."""
    climb.kill()


def interrupt(climb: subprocess.Popen[str], run_id: str) -> None:
    """Ctrl-C."""
    climb.send_signal(signal.SIGINT)


@pytest.mark.parametrize("fork", ["--fork", "--no-fork"])
@pytest.mark.parametrize(
    ("act", "code"),
    [
        pytest.param(kill("WorkerDict"), 22, id="a worker killed"),
        pytest.param(kill("verl.trainer.main_ppo"), 22, id="the driver killed"),
        pytest.param(kill_climb, -9, id="the climb killed"),
        pytest.param(interrupt, 130, id="Ctrl-C"),
    ],
)
def test_nothing_is_left(
    place: Place, act: Callable[[subprocess.Popen[str], str], None], code: int, fork: str
) -> None:
    climb = place.start("--steps", "1000", fork)
    act(climb, place.trains(climb))
    out, _ = climb.communicate(timeout=180)
    assert climb.returncode == code, out
    assert "Traceback" not in out
    left = place.left()
    if code == -9:  # its folders go with the next climb (harness/evidence/abandoned.py): that is climbed
        assert not [one for one in left if not one.startswith("file ")], left
        after = place.start("--to", "env", "--from", "env")
        assert after.wait(timeout=SECONDS) == 0
        left = place.left()
    assert not left


@pytest.mark.parametrize("fork", ["--fork", "--no-fork"])
def test_an_exception_in_a_worker_leaves_nothing(place: Place, tmp_path: Path, fork: str) -> None:
    (tmp_path / "reward.py").write_text(RAISES)
    climb = place.start(fork, "--reward", f"{tmp_path / 'reward.py'}:score")
    out, _ = climb.communicate(timeout=SECONDS)
    assert climb.returncode == 22, out
    assert "on purpose" in out
    assert not place.left()


class Limited:
    """A memory cgroup with its limit, of version 1 or 2."""

    def __init__(self) -> None:
        name = f"verlock-{os.getpid()}"
        one = Path("/sys/fs/cgroup/memory")
        self.first = one.is_dir()
        self.path = (one if self.first else Path("/sys/fs/cgroup")) / name
        self.path.mkdir()
        limit = "memory.limit_in_bytes" if self.first else "memory.max"
        (self.path / limit).write_text(str(LIMIT))

    def kills(self) -> int:
        """How often the kernel killed for memory in it."""
        text = (self.path / ("memory.oom_control" if self.first else "memory.events")).read_text()
        return int(next(line for line in text.splitlines() if line.startswith("oom_kill ")).split()[1])


@pytest.fixture
def limited() -> Iterator[Limited]:
    try:
        group = Limited()
    except OSError as error:
        pytest.skip(f"the kernel kills for memory in a memory cgroup, and none can be made here: {error}")
    yield group
    group.path.rmdir()  # refuses while a process is in it


@pytest.mark.parametrize("fork", ["--fork", "--no-fork"])
def test_an_out_of_memory_kill_leaves_nothing(
    place: Place, tmp_path: Path, limited: Limited, fork: str
) -> None:
    """A reward function that eats memory; the kernel's own killer ends its worker, nobody else does."""
    (tmp_path / "reward.py").write_text(EATS)
    words = (fork, "--reward", f"{tmp_path / 'reward.py'}:score")
    climb = place.start(*words, before=f"echo $$ > {limited.path}/cgroup.procs")
    out, _ = climb.communicate(timeout=SECONDS)
    assert climb.returncode not in (0, None), out
    assert limited.kills() >= 1
    assert not place.left()


def test_many_runs_in_a_row_leave_nothing(place: Place, record_property: Any) -> None:
    """Every tenth is started normally; the seconds of the first and the last say whether runs get slower."""
    took = []
    for number in range(RUNS):
        began = time.monotonic()
        words = ("--from", "ppo-mock", "--to", "ppo-mock", *(["--no-fork"] if number % 10 == 9 else []))
        climb = place.start(*words)
        out, _ = climb.communicate(timeout=SECONDS)
        assert climb.returncode == 0, out
        took.append(round(time.monotonic() - began, 1))
        left = place.left()
        assert not left, (number, left)
    record_property("seconds", took)


def test_what_is_left_is_found(place: Place) -> None:
    """Planted: a process with a run's id, a folder with a socket, a file in shared memory."""
    import socket

    run_id = "20260101-000000-000-abcd"
    (place.runs / run_id).mkdir(parents=True)
    (place.temporary / "vl-1-x").mkdir()
    planted = Path("/dev/shm") / f"verlock-planted-{os.getpid()}"
    planted.touch()
    process = subprocess.Popen(["sleep", "60"], env={**os.environ, "VERLOCK_RUN_ID": run_id})
    with socket.socket(socket.AF_UNIX) as held:
        held.bind(str(place.temporary / "vl-1-x" / "s"))
        held.listen()
        try:
            found = "\n".join(place._left())
        finally:
            process.kill()
            process.wait()
            planted.unlink()
    for sign in (
        f"process {process.pid} sleep",
        "file ",
        f"socket {place.temporary}",
        f"memory {planted.name}",
    ):
        assert sign in found
    (place.temporary / "vl-1-x" / "s").unlink()
    (place.temporary / "vl-1-x").rmdir()
    assert not place.left()
