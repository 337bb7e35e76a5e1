"""The plan of a case, and what verl's own worker took for it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.ladder.memory.command import Planner
from harness.ladder.memory.phases import Machine, Traced, phases
from harness.ladder.memory.settings import Settings
from harness.profiles import load

Case = dict[str, Any]
SHARED = Machine(device=None, host=1 << 40)


def words(case: Case) -> list[str]:
    lengths = [f"data.max_prompt_length={case['prompt']}", f"data.max_response_length={case['response']}"]
    return [*lengths, f"data.train_batch_size={case['rows']}", *case["overrides"]]


def planned(case: Case, *more: str) -> dict[str, int]:
    """Bytes of the case's role alone, as the plan has them, in the phases that are measured."""
    settings, traced = Planner(load("cpu"), case["config"], [*words(case), *more]).trace()
    return alone(settings, traced, case["role"])


def alone(settings: Settings, traced: Traced, role: str) -> dict[str, int]:
    rest = sum(
        (1 + moments) * one.shard
        for name, moments in (("actor", 2), ("critic", 2), ("reference", 0))
        if name != role and (one := getattr(traced, name))
    ) + (traced.rollout.weights if traced.rollout else 0)
    table = {one.name: one.device - rest for one in phases(settings, traced, SHARED)}
    shard = getattr(traced, role).shard
    infer = table["old log-probabilities" if role == "actor" else "values"]
    # The measured inference comes before the first update, and so before any optimiser state.
    return {"infer": infer - 2 * shard, "update": table[f"{role} update"], "after": 3 * shard}


def measured(case: Case, folder: Path) -> dict[str, int]:
    """verl's own TrainingWorker in a process of its own, by torch's CPU allocator."""
    script = Path(__file__).with_name("measured.py")
    done = subprocess.run(
        [sys.executable, "-P", script, folder, json.dumps(case)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, int] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


@pytest.fixture
def compare() -> Callable[[Case, Path], tuple[dict[str, int], dict[str, int]]]:
    return lambda case, folder: (planned(case), measured(case, folder))


@pytest.fixture
def replan() -> Callable[..., dict[str, int]]:
    return planned
