"""Ratios, measured side by side: in each round every side runs once, so that a busy machine slows them alike.

Absolute times differ between machines and from hour to hour; a ratio of two things that ran one after the
other holds better. Its spread is the least and the greatest ratio of any round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from statistics import median
from typing import Literal

from pydantic import BaseModel, ConfigDict

Unit = Literal["s", "MB/s", "rows/s", "MB", "s/step", "tokens/s"]
MORE_IS_BETTER: frozenset[Unit] = frozenset({"MB/s", "rows/s", "tokens/s"})


class Frozen(BaseModel):
    """What a measurement is made of."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Aim(Frozen):
    """What was asked for: at least so many times as good as ``against``, or at most so much of the unit."""

    at_least: float | None = None
    against: str | None = None
    at_most: float | None = None


class Ratio(Frozen):
    """How many times as good the first side is as another: above 1 it is better."""

    against: str
    median: float
    low: float
    high: float


class Result(Frozen):
    """One case: each side's value in each round, in order."""

    id: str
    what: str
    unit: Unit
    values: dict[str, list[float]]
    ratios: list[Ratio]
    aim: Aim | None = None
    met: bool | None = None
    notes: list[str] = []

    @property
    def first(self) -> str:
        """The side that is ours."""
        return next(iter(self.values))


class Case(Frozen):
    """What is measured: sides by name, ours first, each giving one value in ``unit`` when it is called."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    id: str
    what: str
    unit: Unit
    sides: dict[str, Callable[[], float]]
    rounds: int = 3
    aim: Aim | None = None
    notes: list[str] = []


def run(case: Case, say: Callable[[str], object]) -> Result:
    """Run the rounds; every second one goes backwards, so that no side always comes after the same other."""
    values: dict[str, list[float]] = {name: [] for name in case.sides}
    for number in range(case.rounds):
        names = list(case.sides)
        for name in names if number % 2 == 0 else reversed(names):
            value = case.sides[name]()
            values[name].append(value)
            say(f"  {case.id}: round {number + 1} of {case.rounds}, {name}: {value:.3g} {case.unit}")
    return judged(case, values)


def judged(case: Case, values: Mapping[str, list[float]]) -> Result:
    """The ratios of each round, and whether the aim was met."""
    ours, *others = values
    ratios = [_ratio(case.unit, values[ours], values[name], name) for name in others]
    return Result(
        id=case.id,
        what=case.what,
        unit=case.unit,
        values={name: [round(value, 4) for value in given] for name, given in values.items()},
        ratios=ratios,
        aim=case.aim,
        met=None if case.aim is None else _met(case.aim, values[ours], ratios),
        notes=case.notes,
    )


def _ratio(unit: Unit, ours: list[float], theirs: list[float], name: str) -> Ratio:
    pairs = [a / b if unit in MORE_IS_BETTER else b / a for a, b in zip(ours, theirs, strict=True)]
    return Ratio(
        against=name, median=round(median(pairs), 3), low=round(min(pairs), 3), high=round(max(pairs), 3)
    )


def _met(aim: Aim, ours: list[float], ratios: list[Ratio]) -> bool:
    found = {ratio.against: ratio.median for ratio in ratios}
    enough = aim.at_least is None or found[str(aim.against)] >= aim.at_least
    return enough and (aim.at_most is None or median(ours) <= aim.at_most)


def slower(old: list[Result], new: list[Result]) -> Iterator[str]:
    """The cases of which every round is now worse than each was: more than the spread can explain."""
    before = {(one.id, ratio.against): ratio for one in old for ratio in one.ratios}
    for one in new:
        for ratio in one.ratios:
            was = before.get((one.id, ratio.against))
            if was is not None and ratio.high < was.low:
                yield (
                    f"{one.id}: against {ratio.against} it was {was.median:g} times as good "
                    f"({was.low:g} to {was.high:g}), now {ratio.median:g} ({ratio.low:g} to {ratio.high:g})"
                )
