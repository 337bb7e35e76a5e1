"""What one step says of a run's health, put together from verl's metrics, its samples and the memory.

Names of metrics are verl 0.9.1's (trainer/ppo/metric_utils.py, workers/utils/losses.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.evidence import metrics
from harness.evidence.health import samples
from harness.evidence.metrics import Step, Value

MEMORY_EVENT = "memory"
"""An event of each step: ``rung``, ``step``, ``bytes`` by process (title and pid), and their ``measure``."""
GPU_EVENT = "gpu"
"""An event of each step where NVML sees a GPU: ``rung``, ``step``, and ``gpus`` as :mod:`gpus` reads them."""
SKIPPED_EVENT = "gradient_skipped"
"""verl printed that a gradient was not finite and left the optimiser's step out."""
# Against the reference policy, in the loss or in the reward; else against the policy that sampled.
_REFERENCE_KL = ("actor/kl_loss", "actor/reward_kl_penalty")


@dataclass(frozen=True, kw_only=True)
class Point:
    """One step. Lengths in tokens, shares between 0 and 1, KL and entropy in nats a token, memory in bytes.

    ``nan`` is what was not logged. ``gradients`` are the norms that were: ``None`` is one that is not
    finite, which verl's file logger writes as null.
    """

    step: int
    length: float = math.nan
    at_limit: float = math.nan
    reward: float = math.nan
    reward_std: float = math.nan
    reference_kl: float = math.nan
    update_kl: float = math.nan
    entropy: float = math.nan
    clipped: float = math.nan
    gradients: Mapping[str, Value] = field(default_factory=dict)
    skipped: bool = False
    memory: Mapping[str, int] = field(default_factory=dict)


def read(folder: Path, happened: Sequence[Mapping[str, Any]]) -> list[Point]:
    """The steps of the trainer run in ``folder``; none where it logged nothing.

    ``happened`` are the events of this trainer run alone: a climb has several.
    """
    logged = folder / "metrics.jsonl"
    steps = metrics.read(logged) if logged.is_file() else []
    spreads = {spread.step: spread for spread in samples.read(folder / samples.FOLDERS["training"])}
    return [_point(step, spreads.get(step.step), _memory(happened, step.step), happened) for step in steps]


def _point(
    step: Step,
    spread: samples.Spread | None,
    memory: Mapping[str, int],
    happened: Iterable[Mapping[str, Any]],
) -> Point:
    def value(*names: str) -> float:
        found = (step.values.get(name) for name in names)
        return next((float(v) for v in found if isinstance(v, int | float)), math.nan)

    low, high = value("critic/score/min"), value("critic/score/max")
    return Point(
        step=step.step,
        length=value("response_length/mean"),
        at_limit=value("response_length/clip_ratio"),
        reward=value("critic/score/mean"),
        # Without samples only equal rewards are known.
        reward_std=spread.reward_std if spread else (0.0 if low == high else math.nan),
        reference_kl=value(*_REFERENCE_KL),
        update_kl=value("actor/ppo_kl"),
        entropy=value("actor/entropy"),
        clipped=value("actor/pg_clipfrac"),
        gradients={key: v for key, v in step.values.items() if key.endswith("/grad_norm")},
        skipped=any(e.get("kind") == SKIPPED_EVENT and e.get("step") == step.step for e in happened),
        memory=memory,
    )


def _memory(happened: Iterable[Mapping[str, Any]], step: int) -> dict[str, int]:
    found: dict[str, int] = {}
    for event in happened:
        if event.get("kind") == MEMORY_EVENT and event.get("step") == step:
            found |= event["bytes"]
    return found
