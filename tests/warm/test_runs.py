"""One real pair of climbs: forked and started normally, verl's v1 trainer, the same numbers bit for bit.

The v0 trainer, GRPO and the kills are in tests/acceptance/test_issue_6_fork.py.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.evidence import events

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forking needs Linux")


def _climb(runs: Path, fork: str) -> Path:
    words = ["climb", "--from", "ppo", "--steps", "2", "--trainer", "v1", fork, "--runs", str(runs)]
    subprocess.run([sys.executable, "-P", "-m", "harness", *words], check=True, timeout=400)
    return (runs / "latest").resolve()


def _results(folder: Path) -> list[dict[str, Any]]:
    steps = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [
        {
            k: v
            for k, v in s.get("data", s).items()
            if not k.startswith(("timing", "perf/")) and "/perf/" not in k
        }
        for s in steps
    ]


def test_forked_and_started_runs_give_the_same_numbers(tmp_path: Path) -> None:
    forked, started = (_climb(tmp_path / fork, fork) for fork in ("--fork", "--no-fork"))
    assert len(_results(forked)) == 2
    assert _results(forked) == _results(started)
    seen = {name: events.read(folder / "events.jsonl") for name, folder in (("f", forked), ("s", started))}
    assert not [e for e in seen["f"] if e["kind"] == "fork_declined"]
    # Every worker of the forked run says that it was forked, and none of the other does.
    workers = {
        name: [e.get("forked", False) for e in found if e["kind"] == "activated" and e["role"] == "ray::IDLE"]
        for name, found in seen.items()
    }
    assert len(workers["f"]) >= 5
    assert all(workers["f"])
    assert not any(workers["s"])
    patches = {
        name: {(e["kind"], e["patch"]) for e in found if e["kind"] in {"patch", "patch_acted"}}
        for name, found in seen.items()
    }
    assert patches["f"] == patches["s"]
