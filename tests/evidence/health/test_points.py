"""What a run leaves is read as it is: whole, cut by a kill, or not there."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest

from harness.evidence.health import points, samples
from harness.evidence.health.memory import Memory, anonymous
from harness.evidence.processes import RUN_VARIABLE


def logged(folder: Path, *steps: dict[str, float | None]) -> None:
    lines = [json.dumps({"step": number, "data": data}) for number, data in enumerate(steps, 1)]
    (folder / "metrics.jsonl").write_text("\n".join([*lines, ""]))


def sampled(folder: Path, step: int, *rows: tuple[str, float]) -> Path:
    path = folder / "samples" / f"{step}.jsonl"
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps({"output": text, "score": score}) + "\n" for text, score in rows))
    return path


def test_a_step_is_put_together(tmp_path: Path) -> None:
    logged(
        tmp_path,
        {
            "response_length/mean": 12.0,
            "critic/score/min": 0.0,
            "critic/score/max": 1.0,
            "actor/kl_loss": 0.1,
        },
        {"critic/score/min": 0.5, "critic/score/max": 0.5, "actor/grad_norm": None},
    )
    sampled(tmp_path, 1, ("ab", 0.0), ("abcd", 1.0))
    happened = [
        {"kind": "memory", "step": 1, "bytes": {"ray::A (pid 1)": 7}},
        {"kind": "memory", "step": 2, "bytes": {"ray::A (pid 1)": 9}},
        {"kind": "gradient_skipped", "step": 2},
        {"kind": "rung_started"},
    ]
    first, second = points.read(tmp_path, happened)
    assert (first.length, first.reward_std, first.reference_kl) == (12.0, 0.5, 0.1)
    assert (dict(first.memory), first.skipped) == ({"ray::A (pid 1)": 7}, False)
    assert math.isnan(first.entropy)
    assert (second.reward_std, second.skipped, second.gradients) == (0.0, True, {"actor/grad_norm": None})


def test_without_samples_the_deviation_is_not_known(tmp_path: Path) -> None:
    logged(tmp_path, {"critic/score/min": 0.0, "critic/score/max": 1.0})
    assert math.isnan(points.read(tmp_path, [])[0].reward_std)


def test_a_run_that_logged_nothing_has_no_steps(tmp_path: Path) -> None:
    assert points.read(tmp_path, []) == []
    assert samples.read(tmp_path / "samples") == []


def test_samples_cut_by_a_kill_are_read_as_far_as_they_go(tmp_path: Path) -> None:
    whole = sampled(tmp_path, 2, ("a", 0.0), ("abc", 1.0), ("abcdef", 0.5))
    whole.write_text(whole.read_text()[:-9])
    sampled(tmp_path, 10, ("a", math.nan))
    (tmp_path / "samples" / "notes.jsonl").write_text("{}\n")
    (tmp_path / "samples" / "3.jsonl").write_text('{"outp')
    cut, odd = samples.read(tmp_path / "samples")
    assert (cut.step, cut.responses, cut.reward_mean, cut.reward_std) == (2, 2, 0.5, 0.5)
    assert cut.characters == (1, 1, 1, 3, 3)
    assert (odd.step, math.isnan(odd.reward_std)) == (10, True)


GROWING = """
import sys, time
kept = []
for line in sys.stdin:
    kept.append(bytearray(b"x") * (20 * 2**20))
    print(len(kept), flush=True)
"""


def test_what_a_process_keeps_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(RUN_VARIABLE, "test-health-memory")
    with subprocess.Popen(
        [sys.executable, "-c", GROWING], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        memory, seen = Memory("test-health-memory"), []
        for _ in range(3):
            child.stdin.write("more\n")
            child.stdin.flush()
            child.stdout.readline()
            seen.append(memory.read()[f"python -c (pid {child.pid})"])
        child.stdin.close()
    growth = [after - before for before, after in pairwise(seen)]
    assert all(18 * 2**20 < each < 30 * 2**20 for each in growth), growth
    deadline = time.monotonic() + 10
    while memory.read() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert memory.read() == {}, "it has gone"


FORKED = """
import os, sys
kept = bytearray(b"x") * (200 * 2**20)
child = os.fork()
if child == 0:
    own = bytearray(b"y") * (30 * 2**20)
    print(os.getpid(), flush=True)
    for line in sys.stdin:
        own += bytearray(b"z") * (40 * 2**20)
        print("grown", flush=True)
    os._exit(0)
os.wait()
"""


@pytest.mark.skipif(
    sys.platform != "linux", reason="elsewhere nothing is forked, and all that is resident counts"
)
def test_what_a_forked_process_shares_with_its_parent_is_not_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(RUN_VARIABLE, "test-health-forked")
    with subprocess.Popen(
        [sys.executable, "-c", FORKED], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        name = f"python -c (pid {int(parent.stdout.readline())})"
        memory = Memory("test-health-forked")
        before = memory.read()[name]
        parent.stdin.write("more\n")
        parent.stdin.flush()
        parent.stdout.readline()
        after = memory.read()[name]
        parent.stdin.close()
    assert 25 * 2**20 < before < 60 * 2**20, "its own, and not its parent's 200 MiB"
    assert 35 * 2**20 < after - before < 60 * 2**20, "what it takes later is"


def test_the_kernels_words_are_read() -> None:
    assert anonymous("Name:\tx\nVmRSS:\t 10 kB\nRssAnon:\t      2048 kB\nRssFile:\t 1 kB\n") == 2 * 2**20
    assert anonymous("Name:\tx\n") == 0
