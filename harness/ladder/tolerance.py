"""How far two ways of computing the same thing may be apart: each limit beside what was measured."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


def probs_tolerance(*, is_tiny: bool) -> float:
    """The limit for ``training/rollout_probs_diff_max``, fp32 on both sides.

    Tiny model: measured 2e-9 to 7e-9, and 1.2e-4 with bf16 autocast. A pretrained model's probabilities
    are near 1 instead of 1/260, so the same rounding shows larger: SmolLM2-135M measured 1.3e-5.
    """
    return 1e-6 if is_tiny else 2e-4


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How far two ways of computing one batch may be apart; absolute, but ``gradients`` (norms) relative."""

    log_probs: float
    values: float
    losses: float
    gradients: float

    def exceeded(self, one: Mapping[str, Sequence[float]], other: Mapping[str, Sequence[float]]) -> list[str]:
        """What is further apart than allowed, or not a number; each with its figure and the limit."""
        found = []
        for name, limit in vars(self).items():
            worst = max(map(_relative if name == "gradients" else _absolute, one[name], other[name]))
            if not worst <= limit:
                found.append(f"{name} differ by {worst:.2g}, limit {limit:g}")
        return found


def _absolute(one: float, other: float) -> float:
    return abs(one - other) if math.isfinite(other) else math.inf


def _relative(one: float, other: float) -> float:
    return _absolute(one, other) / abs(one)


# The same mathematics in another order: sdpa against eager, both in fp32. Measured on the tiny model:
# 4.8e-7, 6.0e-8, 0 and 0. A softmax that is taken twice gives 2.9e-3, 3.2e-3, 5.3e-4 and 9.4e-4.
SAME = Limits(log_probs=1e-5, values=1e-5, losses=1e-5, gradients=1e-5)
# fp32 against bf16 autocast with FSDP's bf16 parameters. Measured on the tiny model: 3.3e-2, 1.7e-3, 1.2e-3
# and 1.3e-3. An attention that sees the future gives 8.1e-2, 8.8e-2, 5.6e-2 and 9.8e-2.
BF16 = Limits(log_probs=1e-1, values=1e-2, losses=5e-3, gradients=1e-2)
