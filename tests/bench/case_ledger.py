"""What counting costs: seconds a step of the real trainer with every operation looked at, and without."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from measure import Case
from place import Place, checked

STEPS = 8
# The first steps build caches on both sides.
WARM = 3


def cases(place: Place) -> Iterator[Case]:
    """PPO with critic and reference on the tiny model: many small operations, so the dearest case."""
    folder = place.folder("ledger")
    yield Case(
        id="ledger",
        what=f"one step of PPO on the tiny model, median of {STEPS - WARM}, under the contract",
        unit="s/step",
        sides={
            "counted (--enforce)": lambda: seconds(folder / "counted", "--enforce"),
            "not counted": lambda: seconds(folder / "plain"),
        },
    )


def seconds(runs: Path, *words: str) -> float:
    """The median time of a step, as verl measures it, of one climb of the ppo rung."""
    runs.mkdir(exist_ok=True)
    asked = ["climb", "--from", "ppo", "--to", "ppo", "--steps", str(STEPS), "--runs", str(runs), *words]
    checked([sys.executable, "-P", "-m", "harness", *asked], cwd=runs)
    lines = (runs / "latest" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return median(float(json.loads(line)["data"]["timing_s/step"]) for line in lines[WARM:])
