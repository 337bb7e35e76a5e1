"""Issue 2 on the machine: memory of a laptop, a record that survives a kill, times with where they go."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from harness.evidence import processes
from harness.evidence.model import Run, load

pytestmark = pytest.mark.acceptance

ROOT = Path(__file__).parents[2]
LIMIT = 8 * 2**30
Record = Callable[[str, object], None]


def command(runs: Path, *words: str) -> list[str]:
    return [sys.executable, "-P", "-m", "harness", "climb", "--json", "--runs", str(runs), *words]


def variables() -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if key != "VERL_USE_EXTERNAL_MODULES"}
    return {**kept, "PYTHONPATH": str(ROOT)}


def tell(run: Run, record_property: Record) -> None:
    record_property("rungs", {rung.name: rung.seconds for rung in run.rungs})
    record_property("seconds", run.seconds)
    record_property("peak_pss_gib", round(run.resources.peak_pss_bytes / 2**30, 2))
    for rung in run.rungs:
        if "seconds_per_step" in rung.details:
            record_property(f"{rung.name} seconds_per_step", rung.details["seconds_per_step"])


# --- times and memory ---------------------------------------------------------------------------------------


def test_the_climb_to_reward(tmp_path: Path, record_property: Record) -> None:
    """How long, for the record: no limit is asserted, the machine is shared."""
    began = time.monotonic()
    done = subprocess.run(
        command(tmp_path / "runs", "--to", "reward"),
        env=variables(),
        capture_output=True,
        text=True,
        check=False,
    )
    record_property("wall_seconds", round(time.monotonic() - began, 1))
    assert done.returncode == 0, done.stdout
    tell(load(tmp_path / "runs" / "latest"), record_property)


class Group:
    """A memory cgroup of version 1 or 2; ``within`` starts a command in it."""

    def __init__(self, limit: int) -> None:
        memory = Path("/sys/fs/cgroup/memory")
        self.v1 = memory.is_dir()
        self.folder = (memory if self.v1 else Path("/sys/fs/cgroup")) / f"verlock-test-{os.getpid()}"
        self.folder.mkdir()
        name = "memory.limit_in_bytes" if self.v1 else "memory.max"
        (self.folder / name).write_text(str(limit))
        swap = self.folder / ("memory.memsw.limit_in_bytes" if self.v1 else "memory.swap.max")
        with suppress(OSError):
            swap.write_text(str(limit) if self.v1 else "0")

    def within(self, words: list[str]) -> list[str]:
        enter = f'echo $$ > {self.folder}/cgroup.procs && exec "$0" "$@"'
        return ["sh", "-c", enter, *words]

    def peak(self) -> int:
        return int((self.folder / ("memory.max_usage_in_bytes" if self.v1 else "memory.peak")).read_text())

    def remove(self) -> None:
        for _ in range(50):
            with suppress(OSError):
                self.folder.rmdir()
                return
            time.sleep(0.1)


@pytest.fixture
def group() -> Iterator[Callable[[int], Group]]:
    made: list[Group] = []

    def make(limit: int) -> Group:
        try:
            made.append(Group(limit))
        except OSError as error:
            pytest.skip(f"no memory cgroup can be made here: {error}")
        return made[-1]

    yield make
    for one in made:
        one.remove()


def test_the_limit_below_is_real(group: Callable[[int], Group]) -> None:
    greedy = [sys.executable, "-c", "x = bytearray(2**29); print(x.count(b'1'))"]
    done = subprocess.run(group(2**27).within(greedy), capture_output=True, check=False)
    assert done.returncode in {-signal.SIGKILL, 128 + signal.SIGKILL}


def test_the_whole_climb_within_8_gib(
    tmp_path: Path, group: Callable[[int], Group], record_property: Record
) -> None:
    """A laptop with 16 GB has half of it left for this."""
    limited = group(LIMIT)
    done = subprocess.run(
        limited.within(command(tmp_path / "runs")),
        env=variables(),
        capture_output=True,
        text=True,
        check=False,
    )
    record_property("cgroup_peak_gib", round(limited.peak() / 2**30, 2))
    assert done.returncode == 0, done.stdout
    run = load(tmp_path / "runs" / "latest")
    tell(run, record_property)
    assert [rung.status for rung in run.rungs] == ["passed"] * 7
    assert 2**30 < run.resources.peak_pss_bytes < LIMIT


# --- ends that nobody planned -------------------------------------------------------------------------------


@pytest.fixture
def in_the_middle(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A climb whose trainer has done at least one of many steps."""
    runs = tmp_path / "runs"
    words = command(runs, "--from", "ppo", "--steps", "500")
    climb = subprocess.Popen(
        words,
        env=variables(),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    metrics = runs / "latest" / "metrics.jsonl"
    deadline = time.monotonic() + 300
    while not (metrics.exists() and metrics.read_text()):
        assert climb.poll() is None, climb.communicate()[0]
        assert time.monotonic() < deadline, "no step within five minutes"
        time.sleep(0.2)
    yield climb, (runs / "latest").resolve()
    with suppress(ProcessLookupError):
        os.killpg(climb.pid, signal.SIGKILL)
    climb.communicate()
    processes.sweep((runs / "latest").resolve().name)


def left(run_id: str, patience: float) -> list[Any]:
    """The processes of the run that are still there after ``patience`` seconds."""
    deadline = time.monotonic() + patience
    while (found := processes.find(run_id)) and time.monotonic() < deadline:
        time.sleep(0.2)
    return found


def test_a_kill_leaves_a_true_record_and_no_process(
    in_the_middle: tuple[subprocess.Popen[str], Path], record_property: Record
) -> None:
    """SIGKILL, as from the kernel out of memory: nobody is left to write or to clean up."""
    climb, folder = in_the_middle
    assert len(processes.find(folder.name)) > 5
    began = time.monotonic()
    psutil.Process(climb.pid).kill()
    climb.wait()
    run = load(folder)
    assert (run.status, run.exit_code, run.ended) == ("interrupted", None, None)
    assert [(rung.name, rung.status) for rung in run.rungs] == [("ppo", "interrupted")]
    assert left(folder.name, 30) == []
    record_property("gone_after_seconds", round(time.monotonic() - began, 1))


def test_ctrl_c_completes_the_record_and_ends_everything(
    in_the_middle: tuple[subprocess.Popen[str], Path], record_property: Record
) -> None:
    """A terminal sends SIGINT to the whole foreground group."""
    climb, folder = in_the_middle
    began = time.monotonic()
    os.killpg(climb.pid, signal.SIGINT)
    stdout, _ = climb.communicate(timeout=60)
    record_property("ended_after_seconds", round(time.monotonic() - began, 1))
    assert climb.returncode == 130, stdout
    assert json.loads(stdout)["error"]["exit_code"] == 130
    run = load(folder)
    assert (run.status, run.exit_code) == ("interrupted", 130)
    assert run.ended is not None
    assert (folder / "report.html").is_file()
    assert left(folder.name, 5) == []
