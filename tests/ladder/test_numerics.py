"""Attention and dtype, tried on verl's own workers: what must agree agrees, and what is wrong is caught."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from harness.adapt.settings import Settings
from harness.ladder.tolerance import BF16, SAME, Limits

WITH_VERL = pytest.mark.skipif(importlib.util.find_spec("verl") is None, reason="verl comes with the lock")
ROOT = Path(__file__).parents[2]
COMPUTE = ("actor_rollout_ref.actor.fsdp_config", "critic.fsdp")
ATTENTION = ("actor_rollout_ref.model", "critic.model")


@dataclass(frozen=True, kw_only=True)
class Way:
    """One way of computing: overrides, attention, and a fault (a plug-in of tests/faults, and its kind)."""

    words: tuple[str, ...] = ()
    attention: str = "sdpa"
    plugin: str = ""
    fault: str = ""


WAYS = {
    "fp32": Way(),
    "bf16": Way(words=tuple(f"+{key}.mixed_precision.param_dtype=bf16" for key in COMPUTE)),
    "eager": Way(
        words=tuple(f"+{key}.override_config.attn_implementation=eager" for key in ATTENTION),
        attention="eager",
    ),
    "wrong mask": Way(plugin="wrong_mask"),
    "sees the future": Way(plugin="attention", fault="sees the future"),
    "double softmax": Way(plugin="attention", fault="double softmax"),
    "the faults' own attention": Way(plugin="attention", fault="none"),
}


def measure(ways: list[Way], folder: Path) -> list[dict[str, list[float]]]:
    """Ways that share attention and plug-in, in one process: the imports take longer than the numbers."""
    first = ways[0]
    environment = {**os.environ, **Settings(attention=first.attention).environment(), "OMP_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "tests" / "faults")])
    if first.plugin:
        environment["VERL_USE_EXTERNAL_MODULES"] += f",{first.plugin}"
    asked = json.dumps([{"words": way.words, "fault": way.fault} for way in ways])
    probe = str(Path(__file__).with_name("numerics_probe.py"))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", probe, str(folder), asked],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    answer: list[dict[str, list[float]]] = json.loads(done.stdout.splitlines()[-1])
    return answer


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, list[float]]]:
    """All ways on the same batch and seed."""
    alike: dict[tuple[str, str], list[str]] = {}
    for name, way in WAYS.items():
        alike.setdefault((way.attention, way.plugin), []).append(name)
    found: dict[str, dict[str, list[float]]] = {}
    for names in alike.values():
        answers = measure([WAYS[name] for name in names], tmp_path_factory.mktemp("way"))
        found |= dict(zip(names, answers, strict=True))
    return found


Measured = dict[str, dict[str, list[float]]]


@WITH_VERL
@pytest.mark.parametrize(
    ("way", "limits"), [("eager", SAME), ("the faults' own attention", SAME), ("bf16", BF16)]
)
def test_what_must_agree_agrees(measured: Measured, way: str, limits: Limits) -> None:
    assert limits.exceeded(measured["fp32"], measured[way]) == []


@WITH_VERL
def test_the_ways_really_differ(measured: Measured) -> None:
    """A comparison of a thing with itself would pass as well."""
    assert measured["eager"]["log_probs"] != measured["fp32"]["log_probs"]
    assert SAME.exceeded(measured["fp32"], measured["bf16"])


@WITH_VERL
@pytest.mark.parametrize(
    ("fault", "limits", "caught"),
    [
        ("wrong mask", SAME, {"losses"}),
        ("double softmax", SAME, {"log_probs", "values", "losses", "gradients"}),
        ("sees the future", SAME, {"log_probs", "values", "losses", "gradients"}),
        ("sees the future", BF16, {"values", "losses", "gradients"}),
    ],
)
def test_what_is_wrong_is_caught(measured: Measured, fault: str, limits: Limits, caught: set[str]) -> None:
    """A double softmax lies within the rounding of bf16: dtype and attention must be compared one by one."""
    found = limits.exceeded(measured["fp32"], measured[fault])
    assert {text.split(" ")[0] for text in found} >= caught, found


NUMBERS: dict[str, Any] = {"log_probs": [-5.0], "values": [0.1], "losses": [-0.5], "gradients": [4.0]}
CHANGED = [
    ({}, []),
    ({"log_probs": [-5.1]}, ["log_probs"]),
    ({"losses": [float("nan")]}, ["losses"]),
    ({"gradients": [4.0000001]}, []),
    ({"gradients": [4.1], "values": [0.2]}, ["values", "gradients"]),
]


@pytest.mark.parametrize(("changed", "caught"), CHANGED)
def test_the_limits(changed: dict[str, Any], caught: list[str]) -> None:
    assert [text.split(" ")[0] for text in SAME.exceeded(NUMBERS, NUMBERS | changed)] == caught
