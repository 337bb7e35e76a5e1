"""Issue 7, replay: a climb comes out bit for bit again, a failed one fails again, a change is named."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.evidence.model import load

pytestmark = pytest.mark.acceptance
ROOT = Path(__file__).parents[2]
SECONDS = 1800
RAISES = """def score(data_source, solution_str, ground_truth, extra_info=None):
    return {"score": extra_info["nobody wrote this"]}
"""
SEEDED = """import os

def score(data_source, solution_str, ground_truth, extra_info=None):
    return len(solution_str) / {divisor}
"""


def verlock(*words: str | Path, cwd: Path, **variables: str) -> tuple[int, dict[str, Any]]:
    """As a user types it; with a test's plug-in where a variable names one."""
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests" / "faults")])
    done = subprocess.run(
        [sys.executable, "-P", "-m", "harness", words[0], "--json", *map(str, words[1:])],
        env={**os.environ, "PYTHONPATH": path, **variables},
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, json.loads(done.stdout)


def test_a_whole_climb_comes_out_bit_for_bit(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    code, first = verlock("climb", "--full", "--runs", "runs", cwd=tmp_path)
    assert code == 0, first
    code, told = verlock("replay", "runs/latest", cwd=tmp_path)
    assert code == 0, told
    assert told["reproduced"] is True
    assert told["compared"]["rungs"] == 9
    assert told["compared"]["values"] > 500
    record_property("compared", told["compared"])


def test_a_failed_trainer_fails_again_in_the_same_way(tmp_path: Path) -> None:
    (tmp_path / "judge.py").write_text(RAISES)
    words = ("--from", "ppo", "--to", "ppo", "--reward", "judge.py:score", "--runs", "runs")
    code, failed = verlock("climb", *words, cwd=tmp_path)
    assert code == 22, failed
    code, told = verlock("replay", "runs/latest", cwd=tmp_path)
    assert code == 0, told
    failure = load(tmp_path / "runs" / "latest").failure
    assert failure is not None
    assert (told["status"], told["failure"]) == ("failed", failure.signature)


@pytest.mark.parametrize("trainer", ["v0", "v1"])
def test_the_first_step_and_metric_that_differ_are_named(tmp_path: Path, trainer: str) -> None:
    """The reward file is edited between the two: refused, and with --anyway its effect is placed."""
    (tmp_path / "judge.py").write_text(SEEDED.format(divisor=64))
    words = (
        "--from",
        "ppo",
        "--to",
        "ppo",
        "--trainer",
        trainer,
        "--steps",
        "2",
        "--reward",
        "judge.py:score",
    )
    code, first = verlock("climb", *words, "--runs", "runs", cwd=tmp_path)
    assert code == 0, first
    (tmp_path / "judge.py").write_text(SEEDED.format(divisor=65))
    recorded = tmp_path / "runs" / first["id"]
    code, refused = verlock("replay", recorded, cwd=tmp_path)
    assert code == 13, refused
    code, told = verlock("replay", recorded, "--anyway", cwd=tmp_path)
    assert code == 40, told
    assert told["reproduced"] is False
    assert told["despite"] == ["judge.py was changed since the run"]
    parting = told["parting"]
    assert (parting["rung"], parting["kind"]) in {("ppo", "metric"), ("ppo", "measured")}
    assert parting["a"] != parting["b"]


def test_a_plug_in_that_draws_from_the_clock_is_not_reproduced(tmp_path: Path) -> None:
    """Nothing of environment, words or files differs; the replay still says where the two runs part."""
    file = tmp_path / "judge.py"
    file.write_text(
        "import time\n\ndef score(data_source, solution_str, ground_truth, extra_info=None):\n"
        "    return (hash(solution_str) % 97 + time.time() % 1) / 100\n"
    )
    words = ("--from", "ppo", "--to", "ppo", "--steps", "1", "--reward", "judge.py:score", "--runs", "runs")
    code, first = verlock("climb", *words, cwd=tmp_path)
    assert code == 0, first
    code, told = verlock("replay", "runs/latest", cwd=tmp_path)
    assert code == 40, told
    assert told["despite"] == []
    assert told["parting"]["rung"] == "ppo"
