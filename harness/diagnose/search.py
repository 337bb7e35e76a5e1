"""The boundary at fault with the fewest runs: a binary search over how many boundaries are real. Pure.

In a row of boundaries, run *k* has the first k real and the rest minimal. Run 0 passes and the last one
fails; somewhere between two neighbours the failure comes. These two differ in one boundary: they are the
evidence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Found:
    """``boundary`` is None where the failure is there with everything minimal. ``runs`` were made for it."""

    boundary: str | None
    passing: frozenset[str] | None
    failing: frozenset[str]
    runs: int


def search(boundaries: Sequence[str], fails: Callable[[frozenset[str]], bool]) -> Found:
    """Find the boundary whose being real makes the failure come.

    ``fails`` makes one run with the given boundaries real and says whether *the* failure came. The run with
    all of them real has failed already. At most ``ceil(log2(n)) + 1`` runs for n boundaries: the search,
    and run 0 where it is itself one of the two neighbours or nothing passed before.
    """
    made: dict[int, bool] = {len(boundaries): True}

    def failing(count: int) -> bool:
        if count not in made:
            made[count] = fails(frozenset(boundaries[:count]))
        return made[count]

    low, high = 0, len(boundaries)  # run `high` fails; run `low` is taken to pass
    while high - low > 1:
        middle = (low + high) // 2
        if failing(middle):
            high = middle
        else:
            low = middle
    if low == 0 and (not boundaries or failing(0)):
        return Found(boundary=None, passing=None, failing=frozenset(), runs=len(made) - 1)
    return Found(
        boundary=boundaries[high - 1],
        passing=frozenset(boundaries[:low]),
        failing=frozenset(boundaries[:high]),
        runs=len(made) - 1,
    )
