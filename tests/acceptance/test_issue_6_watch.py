"""Issue 6, warm loop: a real watch on a real checkout; each verdict is about the code as just saved."""

from __future__ import annotations

import importlib.util
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.evidence import events
from harness.evidence.model import load
from harness.evidence.processes import Members

pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.skipif(sys.platform != "linux", reason="watch is for Linux"),
]
SECONDS = 400
ALGORITHMS = "verl/trainer/ppo/core_algos.py"
RIGHT, FLIPPED = "pg_losses1 = -advantages * ratio", "pg_losses1 = +advantages * ratio"
REWARD = '''"""Digits, as the example of the README."""


def score(data_source, solution_str, ground_truth, extra_info=None):
    return sum(c in "0123456789" for c in solution_str) / max(len(solution_str), 1)
'''


class Watch:
    """A `verlock watch --json`, as a user starts it."""

    def __init__(self, folder: Path, *words: str, program: tuple[str, ...] = ("-m", "harness")) -> None:
        self.folder = folder
        self.log = (folder / "err.log").open("w")
        command = [sys.executable, "-P", *program, "watch", "--json", *words]
        self.process = subprocess.Popen(
            command, cwd=folder, stdout=subprocess.PIPE, stderr=self.log, text=True, start_new_session=True
        )
        self.verdicts: queue.Queue[dict[str, Any]] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.verdicts.put(json.loads(line))

    def said(self) -> str:
        return (self.folder / "err.log").read_text()

    def verdict(self) -> dict[str, Any]:
        """The next one."""
        try:
            return self.verdicts.get(timeout=SECONDS)
        except queue.Empty:
            pytest.fail(f"no verdict in {SECONDS} s:\n{self.said()}")

    def ready(self) -> None:
        """Until it waits for the next save, with what is to be warm by then."""
        time.sleep(12)


def until_it_trains(runs: Path, after: int) -> None:
    """Until a run later than the first ``after`` has its weights in the rollout."""
    deadline = time.monotonic() + SECONDS
    while not any(
        event["kind"] == "weights"
        for run in sorted(runs.glob("2*"))[after:]
        for event in events.read(run / "events.jsonl")
    ):
        assert time.monotonic() < deadline
        time.sleep(0.2)


def save(path: Path, text: str) -> None:
    """As editors do: written beside, then renamed."""
    beside = path.with_name(f".{path.name}.new")
    beside.write_text(text)
    beside.replace(path)


def left(folder: Path, before: set[str]) -> list[str]:
    """Processes of the watch's runs, and what is new where runs leave things."""
    deadline = time.monotonic() + 20
    while True:
        runs = [Members(path.name).find() for path in (folder / "runs").glob("2*")]
        found = [str(process) for members in runs for process in members]
        found += [f"{p.pid} {p.name()}" for p in of_folder(folder)]
        found += sorted(things() - before)
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(0.5)


def of_folder(folder: Path) -> Iterator[Any]:
    """Whoever has the watch's checkout or folder in its environment."""
    import psutil

    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and str(folder) in process.environ().get("PYTHONPATH", ""):
                yield process
        except (psutil.Error, OSError):
            continue


def things() -> set[str]:
    """Files of Ray and of ours that may outlive a process, without those of other climbs."""
    places = (("/tmp", "vl-*"), ("/dev/shm", "*"))
    return {str(path) for folder, pattern in places for path in Path(folder).glob(pattern) if mine(path)}


def mine(path: Path) -> bool:
    """Not of another climb that goes on beside this test."""
    import psutil

    owner = path.name.removeprefix("vl-").split("-")[0]
    if not (path.name.startswith("vl-") and owner.isdigit()):
        return True
    try:
        return os.getpid() in {p.pid for p in psutil.Process(int(owner)).parents()}
    except psutil.Error:
        return True


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (verl,) = importlib.util.find_spec("verl").submodule_search_locations  # type: ignore[union-attr,misc]
    folder = tmp_path / "checkout"
    shutil.copytree(verl, folder / "verl", ignore=shutil.ignore_patterns("__pycache__"))
    git = ["git", "-C", str(folder), "-c", "user.name=t", "-c", "user.email=t@t"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "as released"]):
        subprocess.run([*git, *words], check=True)
    return folder


def test_a_flipped_sign_a_syntax_error_and_their_repairs_are_seen_by_the_very_next_verdict(
    tmp_path: Path, checkout: Path, record_property: Any
) -> None:
    file, before = checkout / ALGORITHMS, things()
    right = file.read_text()
    assert RIGHT in right
    watch = Watch(tmp_path, "--rung", "forward", "--verl-source", str(checkout))
    try:
        first = watch.verdict()
        assert (first["status"], first["rung"], first["changed"]) == ("passed", "forward", []), watch.said()
        watch.ready()
        seconds = []
        for text, status, words in (
            (right.replace(RIGHT, FLIPPED), "failed", "policy loss"),
            (right, "passed", ""),
            (right + "def (:\n", "failed", "SyntaxError"),
            (right, "passed", ""),
            (right.replace(RIGHT, FLIPPED), "failed", "policy loss"),
        ):
            save(file, text)
            found = watch.verdict()
            assert (found["status"], found["changed"]) == (status, [ALGORITHMS]), watch.said()
            assert words in (found["failure"] or {"cause": ""})["cause"]
            assert found["anew"]
            if found["run"]:
                seconds.append(found["seconds"])
                run = load(tmp_path / found["run"])
                overlay = run.fingerprint["parts"]["verl_overlay"]  # type: ignore[index,call-overload]
                assert overlay["commit"]  # type: ignore[index,call-overload]
                assert bool(overlay["diff"]) == (text != right)  # type: ignore[index,call-overload]
                assert run.settings["verl_source"] == str(checkout)
        record_property("save_to_verdict_forward", seconds)
        assert watch.verdicts.empty()
    finally:
        watch.process.send_signal(signal.SIGINT)
        watch.process.wait(timeout=30)
    assert watch.process.returncode == 130
    assert not left(tmp_path, before)
    git = ["git", "-C", str(checkout), "status", "--porcelain", "--ignored"]
    assert subprocess.run(git, capture_output=True, text=True, check=True).stdout.split() == ["M", ALGORITHMS]


def test_the_trainer_follows_reward_and_code_and_a_save_during_a_run_ends_it(
    tmp_path: Path, checkout: Path, record_property: Any
) -> None:
    reward, before = tmp_path / "reward.py", things()
    reward.write_text(REWARD)
    words = ("--rung", "ppo", "--verl-source", str(checkout), "--reward", f"{reward}:score")
    watch = Watch(tmp_path, *words)
    try:
        assert watch.verdict()["status"] == "passed", watch.said()
        watch.ready()
        save(reward, REWARD.replace("return", "raise ValueError('on purpose')\n    return"))
        raised = watch.verdict()
        assert raised["status"] == "failed"
        assert "on purpose" in raised["failure"]["cause"]
        assert not raised["anew"]  # verl is as it was
        watch.ready()
        save(reward, REWARD)
        repaired = watch.verdict()
        assert repaired["status"] == "passed", watch.said()
        watch.ready()
        file = checkout / ALGORITHMS
        right = file.read_text()
        save(file, right + "# touched\n")
        touched = watch.verdict()
        assert (touched["status"], touched["anew"]) == ("passed", True), watch.said()
        record_property("save_to_verdict_ppo", [repaired["seconds"], touched["seconds"]])
        watch.ready()
        runs = len(list((tmp_path / "runs").glob("2*")))
        save(file, right + "# 1\n")
        until_it_trains(tmp_path / "runs", runs)
        save(file, right + "# 2\n")
        found = watch.verdict()
        assert (found["number"], found["status"]) == (5, "passed"), watch.said()
        assert "saved again" in watch.said()
        assert len(list((tmp_path / "runs").glob("2*"))) == runs + 2
        records = sorted((tmp_path / "runs").glob("2*"))
        assert [load(path).status for path in records[-2:]] == ["interrupted", "passed"]
        assert "# 2" in (records[-1] / "verl.diff").read_text()
    finally:
        watch.process.send_signal(signal.SIGTERM)
        watch.process.wait(timeout=30)
    assert not left(tmp_path, before)


def test_a_killed_watch_leaves_nothing(tmp_path: Path) -> None:
    reward, before = tmp_path / "reward.py", things()
    reward.write_text(REWARD)
    watch = Watch(tmp_path, "--rung", "ppo", "--reward", f"{reward}:score")
    assert watch.verdict()["status"] == "passed", watch.said()
    watch.ready()
    save(reward, REWARD + "\n")
    time.sleep(5)
    watch.process.kill()
    watch.process.wait(timeout=20)
    found = [thing for thing in left(tmp_path, before) if not thing.startswith("/tmp/vl-")]
    assert not found  # its folders go with the next climb (harness/evidence/abandoned.py)


def test_a_ray_that_is_not_known_is_watched_all_the_same(tmp_path: Path, checkout: Path) -> None:
    """Cold starts, and a line that says so; the verdicts are the same."""
    script = tmp_path / "unknown.py"
    script.write_text(
        "import sys\nfrom harness.warm import fork\n"
        "fork.unfit = lambda device, environment: 'a test says so'\n"
        "from harness.cli import main\nsys.argv[0] = 'verlock'\nmain()\n"
    )
    words = ("--rung", "forward", "--verl-source", str(checkout))
    watch = Watch(tmp_path, *words, program=(str(script),))
    try:
        assert watch.verdict()["status"] == "passed", watch.said()
        assert "each run starts normally, not forked: a test says so" in watch.said()
        file = checkout / ALGORITHMS
        save(file, file.read_text().replace(RIGHT, FLIPPED))
        found = watch.verdict()
        assert (found["status"], found["anew"]) == ("failed", True)
        assert "policy loss" in found["failure"]["cause"]
    finally:
        watch.process.send_signal(signal.SIGINT)
        watch.process.wait(timeout=60)
