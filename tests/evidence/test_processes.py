"""Real process trees: found by the run's id, swept to the last orphan, counted."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from harness.evidence import processes
from harness.evidence.abandoned import sweep_abandoned
from harness.evidence.sampler import Sampler, proportional

# A child of a child in a session of its own, whose parent has gone, and that ignores SIGTERM.
Python = Callable[..., list[str]]

ORPHAN = """
import os, signal, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        print(os.getpid(), flush=True)
        os.close(1)
        os.close(2)
        time.sleep(300)
    os._exit(0)
os.wait()
"""
HOLD = "import time; data = bytearray(b'x') * int(sys.argv[1]); print(flush=True); time.sleep(300)"


def environment(run_id: str) -> dict[str, str]:
    return {**os.environ, processes.RUN_VARIABLE: run_id}


@pytest.fixture
def run_id() -> Iterator[str]:
    name = f"test-{os.getpid()}-{time.time_ns()}"
    yield name
    processes.sweep(name, grace=0.1)


def test_sweep_ends_an_orphan_that_ignores_sigterm(python: Python, run_id: str) -> None:
    done = subprocess.run(python(ORPHAN), env=environment(run_id), capture_output=True, text=True, check=True)
    orphan = psutil.Process(int(done.stdout))
    assert orphan.ppid() != os.getpid()
    assert [seen.pid for seen in processes.find(run_id)] == [orphan.pid]
    ended = processes.sweep(run_id, grace=0.3)
    assert [(one.pid, one.how) for one in ended] == [(orphan.pid, "SIGKILL")]
    assert not orphan.is_running() or orphan.status() == psutil.STATUS_ZOMBIE
    assert processes.find(run_id) == []


def test_sweep_leaves_other_runs_and_itself_alone(python: Python, run_id: str) -> None:
    other = f"{run_id}-other"
    with subprocess.Popen(python(HOLD, "1"), env=environment(other), stdout=subprocess.PIPE) as child:
        code = f"from harness.evidence.processes import sweep; print(sweep({run_id!r}))"
        done = subprocess.run(
            python(code), env=environment(run_id), capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == "[]"  # It carries the id itself, and lives to say so.
        assert child.poll() is None
        child.kill()


def test_sweep_waits_for_those_that_leave_by_themselves(python: Python, run_id: str) -> None:
    with subprocess.Popen(python("import time; time.sleep(0.6)"), env=environment(run_id)) as child:
        assert processes.sweep(run_id, patience=10.0) == []
        assert child.wait(timeout=5) == 0


def test_a_killed_climb_leaves_nothing_for_the_next(python: Python, tmp_path: Path) -> None:
    code = f"""
import os, subprocess, sys
from pathlib import Path
from harness.evidence.record import RunRecord
record = RunRecord.create(Path({str(tmp_path)!r}), profile="cpu", command=[])
environment = {{**os.environ, **record.environment()}}
orphan = subprocess.run([sys.executable, "-c", {ORPHAN!r}], env=environment, capture_output=True)
print(record.id, orphan.stdout.decode())
sys.stdin.read()
os.kill(os.getpid(), 9)
"""
    with subprocess.Popen(python(code), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as climb:
        assert climb.stdout is not None
        run_id, pid = climb.stdout.readline().split()
        assert sweep_abandoned(tmp_path) == {}  # Its climb is alive.
        climb.communicate(timeout=10)
    ended = sweep_abandoned(tmp_path, grace=0.3)
    assert {name: [one.pid for one in found] for name, found in ended.items()} == {run_id: [int(pid)]}
    assert sweep_abandoned(tmp_path) == {}


def test_the_sampler_sums_all_processes_and_stays_cheap(python: Python, run_id: str) -> None:
    megabytes = 120
    holders = [
        subprocess.Popen(python(HOLD, str(megabytes << 20)), env=environment(run_id), stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    for holder in holders:
        assert holder.stdout is not None
        holder.stdout.readline()
    began = time.monotonic()
    with Sampler(run_id) as sampler:
        time.sleep(6)
        seen = sampler.resources()
    for holder in holders:
        holder.kill()
        holder.communicate()
    assert seen.peak_pss_bytes > 2 * megabytes << 20
    assert seen.peak_by_title["python -c"] > 2 * megabytes << 20
    assert {os.getpid(), *(holder.pid for holder in holders)} <= {one.pid for one in seen.processes}
    assert (
        seen.sampler_cpu_seconds / (time.monotonic() - began) < 0.03 + 0.02
    )  # The first reading is not rationed.


@pytest.mark.skipif(sys.platform != "linux", reason="PSS is Linux's")
def test_shared_memory_is_counted_once(python: Python, run_id: str) -> None:
    code = """
import mmap, os, time
shared = mmap.mmap(-1, 200 << 20)
shared.write(b"x" * (200 << 20))
for _ in range(3):
    if os.fork() == 0:
        sum(shared[:: 4096])
        time.sleep(300)
time.sleep(1)
print(flush=True)
time.sleep(300)
"""
    with subprocess.Popen(python(code), env=environment(run_id), stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        members = processes.Members(run_id).find()
        assert len(members) == 4
        total = sum(proportional(Path(f"/proc/{one.pid}/smaps_rollup").read_text()) for one in members)
        assert 200 << 20 < total < 300 << 20
        processes.sweep(run_id, grace=0.5)


def test_a_rollup_without_pss() -> None:
    assert proportional("") == 0
    assert proportional("Rss:   10 kB\nPss:     3 kB\nPss_Anon: 1 kB\n") == 3072
