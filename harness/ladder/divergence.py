"""How far two devices are apart, and how far they may be."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from harness.errors import Problem

LOG_PROB = 1e-3
"""Limit of a token's log-probability between two kinds of device, both in fp32: above rounding in another
order, below another dtype. Both are measured by tests/ladder/test_compare.py."""
GRADIENT = 1e-3
"""Limit of the gradient's difference, as a share of its length; as above."""


@dataclass(frozen=True, kw_only=True)
class Divergence:
    """One quantity on both devices: the largest difference, and where it is."""

    name: str
    largest: float
    limit: float
    at: str = ""

    @property
    def within(self) -> bool:
        """Whether it is a number, and no larger than it may be."""
        return math.isfinite(self.largest) and self.largest <= self.limit

    def told(self) -> str:
        """For people."""
        return f"{self.name} {self.largest:.1e}"

    def problem(self, first: str, second: str) -> Problem:
        """What it means where it is too far."""
        return Problem(
            what=f"{self.name} differs by {self.largest:.3g} between {first} and {second} "
            f"(limit {self.limit:g})" + (f", most at {self.at}" if self.at else ""),
            why="the same computation on one device must give the same bits"
            if first == second
            else "rounding in another order does not go so far: another dtype or mask, or a wrong kernel",
            todo="look at the lowest rung that differs first: --to forward",
        )


def limits(first: str, second: str) -> Mapping[str, float]:
    """The limit of each quantity: none at all where both are the same device."""
    if first == second:
        return {"log-probability": 0.0, "gradient": 0.0}
    return {"log-probability": LOG_PROB, "gradient": GRADIENT}
