"""The first steps against the last ones: how a rule sees a change, and not one odd step. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from harness.evidence.health.points import Point

WINDOW = 3
"""Steps at each end that are compared."""


@dataclass(frozen=True, kw_only=True)
class Ends:
    """A value's median in the first steps and in the last, and the step with which the last ones begin.

    ``least`` is the least of the first steps: some changes take a single one.
    """

    least: float
    first: float
    last: float
    begins: Point


def ends(points: Sequence[Point], value: Callable[[Point], float]) -> Ends | None:
    """Both ends of the steps that have the value; none where they would overlap."""
    known = [(point, value(point)) for point in points if not math.isnan(value(point))]
    if len(known) < 2 * WINDOW:
        return None
    first, last = ([number for _, number in part] for part in (known[:WINDOW], known[-WINDOW:]))
    return Ends(least=min(first), first=median(first), last=median(last), begins=known[-WINDOW][0])


def lasting(points: Sequence[Point], holds: Callable[[Point], bool]) -> Sequence[Point]:
    """The longest run of steps at the end for all of which it holds."""
    begin = len(points)
    while begin > 0 and holds(points[begin - 1]):
        begin -= 1
    return points[begin:]
