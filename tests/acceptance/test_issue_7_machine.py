"""Issue 7 on the machine: memory, disk and shared memory that run out, and SIGKILL at twenty moments."""

from __future__ import annotations

import io
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from harness.build.engine import Engine, choose, find
from harness.evidence import events, metrics, processes, report
from harness.evidence.model import Run, load

pytestmark = pytest.mark.acceptance

ROOT = Path(__file__).parents[2]
FAULTS = ROOT / "tests" / "faults"
Record = Callable[[str, object], None]
PPO = ("--from", "ppo", "--to", "ppo", "--trainer", "v0")


def command(runs: Path, *words: str | Path) -> list[str]:
    return [sys.executable, "-P", "-m", "harness", "climb", "--json", "--runs", str(runs), *map(str, words)]


def variables(plugin: str | None = None) -> dict[str, str]:
    kept = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(FAULTS)])}
    kept.pop("VERL_USE_EXTERNAL_MODULES", None)
    return kept | ({"VERL_USE_EXTERNAL_MODULES": plugin} if plugin else {})


def climb(words: Sequence[str], runs: Path, plugin: str | None = None) -> tuple[int, str, Run]:
    done = subprocess.run(words, env=variables(plugin), capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout + done.stderr, load((runs / "latest").resolve())


def kind(run: Run) -> tuple[str, str] | None:
    return (run.failure.failure_class, run.failure.signature) if run.failure else None


# --- memory -------------------------------------------------------------------------------------------------

HOARDS = ("--reward", f"{FAULTS / 'sick_rewards.py'}:hoards")


def test_memory_that_runs_out_in_a_reward_function_is_told(tmp_path: Path) -> None:
    """At the lowest rung that shows it, without Ray: the process may have 10 GiB of addresses."""
    runs = tmp_path / "runs"
    reward = f"{FAULTS / 'sick_rewards.py'}:asks_for_much"
    words = command(runs, "--from", "reward", "--to", "reward", "--reward", reward)
    code, said, run = climb(["sh", "-c", f'ulimit -v {10 * 2**20} && exec "$0" "$@"', *words], runs)
    assert code == 20, said
    assert kind(run) == ("resource", "host-memory")
    assert "sick_rewards.py" in str(run.failure)


class Group:
    """A memory cgroup of version 1 or 2; ``within`` starts a command in it."""

    def __init__(self, limit: int) -> None:
        memory = Path("/sys/fs/cgroup/memory")
        v1 = memory.is_dir()
        self.folder = (memory if v1 else Path("/sys/fs/cgroup")) / f"verlock-test-{os.getpid()}"
        self.folder.mkdir()
        (self.folder / ("memory.limit_in_bytes" if v1 else "memory.max")).write_text(str(limit))

    def within(self, words: Sequence[str]) -> list[str]:
        return ["sh", "-c", f'echo $$ > {self.folder}/cgroup.procs && exec "$0" "$@"', *words]

    def remove(self) -> None:
        for _ in range(50):
            with suppress(OSError):
                self.folder.rmdir()
                return
            time.sleep(0.1)


@pytest.fixture
def group() -> Iterator[Group]:
    try:
        made = Group(4 * 2**30)
    except OSError as error:
        pytest.skip(f"no memory cgroup can be made here: {error}")
    yield made
    made.remove()


def test_a_worker_that_the_kernel_kills_for_memory_is_told(tmp_path: Path, group: Group) -> None:
    """Whether it was Ray's memory monitor or the kernel that ended the reward worker."""
    runs = tmp_path / "runs"
    code, said, run = climb(group.within(command(runs, *PPO, *HOARDS, "--steps", "2")), runs)
    assert code == 22, said
    assert kind(run) == ("resource", "host-memory"), run.failure


# --- disk ---------------------------------------------------------------------------------------------------


def test_a_disk_that_is_full_at_a_checkpoint_is_told(tmp_path: Path) -> None:
    """256 KiB for a checkpoint of 3 MiB, on a file system that only this climb sees."""
    disk, runs = tmp_path / "disk", tmp_path / "runs"
    disk.mkdir()
    words = command(runs, *PPO, "--steps", "2", f"trainer.default_local_dir={disk}", "trainer.save_freq=1")
    mount = f'mount -t tmpfs -o size=256k none {disk} && exec "$0" "$@"'
    code, said, run = climb(["unshare", "-m", "sh", "-c", mount, *words], runs)
    assert code == 22, said
    assert kind(run) == ("resource", "disk-full"), run.failure


# --- shared memory, in a container --------------------------------------------------------------------------

SHARED = 16 * 2**20


@pytest.fixture(scope="module")
def engine() -> Engine:
    try:
        return choose(find())
    except Exception as error:  # noqa: BLE001 - whatever the reason, it is the one to show
        pytest.skip(f"no container engine here: {error}")


@pytest.fixture(scope="module")
def empty_image(engine: Engine) -> Iterator[str]:
    """An image of folders and links alone: the container sees this machine's own /usr and environment."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        for name in ("usr", "etc", "tmp", "proc", "sys", "dev", "run"):
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o777
            tar.addfile(entry)
        for name in ("bin", "sbin", "lib", "lib64"):
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, f"usr/{name}"
            tar.addfile(entry)
    name = "verlock-test-empty:shm"
    subprocess.run(
        engine.command("import", "-", name),
        env=engine.environment(),
        input=content.getvalue(),
        check=True,
        capture_output=True,
    )
    yield name
    subprocess.run(engine.command("rmi", name), env=engine.environment(), check=False, capture_output=True)


def contained(
    engine: Engine, image: str, words: Sequence[str], folder: Path, plugin: str | None
) -> list[str]:
    """The command in a container with 16 MiB of /dev/shm, at the same paths."""
    read = {
        "/usr",
        "/etc",
        str(ROOT),
        sys.prefix,
        sys.base_prefix,
        str(Path(sys.executable).resolve().parents[1]),
    }
    mounts = [word for path in sorted(read) for word in ("--volume", f"{path}:{path}:ro")]
    values = {"PYTHONPATH": variables()["PYTHONPATH"], "HOME": "/tmp"} | (
        {"VERL_USE_EXTERNAL_MODULES": plugin} if plugin else {}
    )
    given = [word for key, value in values.items() for word in ("--env", f"{key}={value}")]
    # Podman raises limits to what an unprivileged machine may not set.
    network = ["--network", "none", *(["--ulimit", "host"] if engine.kind == "podman" else [])]
    size = ["--shm-size", str(SHARED)]
    seen = ["--volume", f"{folder}:{folder}"]
    return [*engine.command("run", "--rm", *network, *size, *mounts, *seen, *given, image), *words]


def test_small_shared_memory_that_ray_survives_is_a_finding(
    tmp_path: Path, engine: Engine, empty_image: str, record_property: Record
) -> None:
    """Ray moves its object store to a disk and goes on; without a word on the console but this one."""
    runs = tmp_path / "runs"
    words = command(runs, "--from", "ppo-mock", "--to", "ppo-mock")
    done = subprocess.run(
        contained(engine, empty_image, words, tmp_path, None),
        env=engine.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (finding,) = load((runs / "latest").resolve()).findings
    record_property("finding", finding.what)
    assert (finding.id, finding.failure_class) == ("shared-memory-small", "resource")
    free = re.search(r"(\d+) bytes are free", finding.what)
    assert free is not None
    assert 0 < int(free[1]) <= SHARED
    assert "warning shared-memory-small" in done.stderr


def test_shared_memory_that_runs_out_is_told(tmp_path: Path, engine: Engine, empty_image: str) -> None:
    """Rows of 64 MiB through the shared memory of a loader's workers: the kernel ends them with SIGBUS."""
    runs = tmp_path / "runs"
    words = command(runs, "--from", "ppo-mock", "--to", "ppo-mock", "data.dataloader_num_workers=1")
    done = subprocess.run(
        contained(engine, empty_image, words, tmp_path, "large_rows"),
        env=engine.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 22, done.stdout + done.stderr
    run = load((runs / "latest").resolve())
    assert kind(run) == ("resource", "shared-memory-small"), run.failure


# --- SIGKILL at twenty moments ------------------------------------------------------------------------------

KILLS, SEED = 20, 7
# A moment is a number of events, not of seconds: on a busy machine all seconds would lie in the first rung.
# The reward rung leaves 4 events, ppo-mock some 65, ppo as many before its first step and 2 a step.
LAST_MOMENT = 150
ORDER = ["reward", "ppo-mock", "ppo"]


def started(runs: Path) -> subprocess.Popen[bytes]:
    """Three rungs, from this process's own to the trainer; returned once there is a record."""
    before = set(runs.glob("2*"))
    words = command(runs, "--from", "reward", "--to", "ppo", "--trainer", "v0", "--steps", "100")
    climbing = subprocess.Popen(
        words, env=variables(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    deadline = time.monotonic() + 120
    while not any((path / "run.json").is_file() for path in set(runs.glob("2*")) - before):
        assert climbing.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return climbing


def how_far(folder: Path) -> dict[str, Any]:
    """Everything that a reader asks of the record, read as any reader does."""
    run = load(folder)
    assert (run.status, run.exit_code, run.ended) == ("interrupted", None, None)
    names = [rung.name for rung in run.rungs]
    assert names == ORDER[: len(names)]
    assert [rung.status for rung in run.rungs[:-1]] == ["passed"] * max(len(names) - 1, 0)
    assert run.failure is None
    happened = events.read(folder / "events.jsonl")
    assert not [event for event in happened if event["kind"] == events.UNREADABLE]
    assert [e["rung"] for e in happened if e["kind"] == "rung_started"][: len(names)] == names
    logged = folder / "metrics.jsonl"
    steps = [step.step for step in metrics.read(logged)] if logged.is_file() else []
    assert steps == list(range(1, len(steps) + 1))
    assert run.id in report.write(folder).read_text()
    return {"rungs": names, "steps": len(steps), "said": (folder / "output.log").is_file()}


def test_sigkill_at_twenty_random_moments(tmp_path: Path, record_property: Record) -> None:
    """After each the record is true and readable, and the next climb is not disturbed; the last passes."""
    runs, draw = tmp_path / "runs", random.Random(SEED)
    reached = []
    for _ in range(KILLS):
        climbing = started(runs)
        folder = (runs / "latest").resolve()
        moment = draw.randint(1, LAST_MOMENT)
        while len(events.read(folder / "events.jsonl")) < moment:
            assert climbing.poll() is None, "it ended before it could be killed"
            time.sleep(0.02)
        time.sleep(draw.uniform(0.0, 0.5))
        os.kill(climbing.pid, signal.SIGKILL)
        climbing.wait()
        reached.append(how_far(folder))
        shutil.rmtree(folder / "inputs", ignore_errors=True)
    record_property("reached", reached)
    assert {one["rungs"][-1] for one in reached} >= {"ppo-mock", "ppo"}, "the moments were not spread"
    assert any(one["steps"] for one in reached), "none was between two steps"
    killed = [path.name for path in runs.glob("2*")]
    assert len(killed) == KILLS
    words = command(runs, "--from", "reward", "--to", "ppo", "--trainer", "v0", "--steps", "2")
    code, said, run = climb(words, runs)
    assert code == 0, said
    assert [rung.status for rung in run.rungs] == ["passed"] * 3
    assert {name: processes.find(name) for name in killed if processes.find(name)} == {}
    assert all(load(runs / name).status == "interrupted" for name in killed), "and stay as they were"
    assert json.loads((runs / "latest" / "run.json").read_text())["status"] == "passed"
