"""What two ranks must show: each holds a part of the weights, and together they compute what one does."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.errors import Problem
from harness.evidence.metrics import Step

# Two ranks add the same numbers in another order. Measured in fp32 with the tiny model: 8e-8 for the critic's
# gradient, and 6e-7 for the policy loss, which is zero but for rounding.
TOLERANCE = 1e-5
# Sums over the gradients of 135 million weights round a hundred times more.
TOLERANCE_LARGE = 1e-3
_SMALL = 1e-2
# Means over the global batch or sums of squares of the whole gradient; none of a rank's own.
COMPARED = (
    "actor/grad_norm",
    "actor/pg_loss",
    "actor/kl_loss",
    "actor/entropy",
    "critic/grad_norm",
    "critic/vf_loss",
    "critic/score/mean",
    "critic/rewards/mean",
    "critic/advantages/mean",
    "critic/advantages/max",
    "response_length/mean",
)


@dataclass(frozen=True, kw_only=True)
class Held:
    """What one rank saved of a model. ``elements`` are numbers in its memory, of ``total`` in the model."""

    elements: int
    total: int
    sharded: int
    """How many of the parameters are divided between ranks."""
    parameters: int


def held(path: Path) -> Held:
    """Read one rank's ``model_world_size_N_rank_R.pt`` as verl's model merger does: local parts, no ranks."""
    import torch
    from torch.distributed.tensor import DTensor

    state = torch.load(path, weights_only=False, map_location="cpu")
    parts = [value for value in state.values() if isinstance(value, torch.Tensor)]
    local = [part._local_tensor if isinstance(part, DTensor) else part for part in parts]  # noqa: SLF001
    return Held(
        elements=sum(part.numel() for part in local),
        total=sum(part.numel() for part in parts),
        sharded=sum(mine.numel() < whole.numel() for mine, whole in zip(local, parts, strict=True)),
        parameters=len(parts),
    )


def unsharded(role: str, ranks: Sequence[Held]) -> Iterator[Problem]:
    """Ranks that hold more than their part, or parts that are not the whole."""
    for number, rank in enumerate(ranks):
        # A parameter whose first dimension is odd leaves one rank a row more.
        if rank.elements > 0.6 * rank.total:
            yield Problem(
                what=f"rank {number} holds {rank.elements} of the {role}'s {rank.total} weights",
                why=f"with {len(ranks)} ranks it must hold its part; it is a copy",
                todo="look for fsdp_size in config.yaml: it must be -1 or the number of ranks",
            )
    total = sum(rank.elements for rank in ranks)
    if ranks and total != ranks[0].total and all(rank.elements <= 0.6 * rank.total for rank in ranks):
        yield Problem(what=f"the ranks hold {total} of the {role}'s {ranks[0].total} weights together")


def compared(one: Step, two: Step) -> dict[str, list[float]]:
    """The metrics of a first step on one rank and on two, those that both have."""
    pairs = {key: (one.values.get(key), two.values.get(key)) for key in COMPARED}
    return {
        key: [float(a), float(b)]
        for key, (a, b) in pairs.items()
        if isinstance(a, int | float) and isinstance(b, int | float)
    }


def _distance(a: float, b: float) -> float:
    """Relative to the larger one; below 0.01 to that: a loss near zero has no meaningful digits."""
    return abs(a - b) / max(abs(a), abs(b), _SMALL)


def worst(one: Step, two: Step) -> float:
    """The largest distance of the compared metrics; infinite where there is nothing to compare."""
    return max((_distance(a, b) for a, b in compared(one, two).values()), default=math.inf)


def disagreements(one: Step, two: Step, *, is_tiny: bool = True) -> Iterator[Problem]:
    """Metrics that differ by more than rounding."""
    tolerance = TOLERANCE if is_tiny else TOLERANCE_LARGE
    found = compared(one, two)
    for key in ("actor/grad_norm", "actor/pg_loss"):
        if key not in found:
            yield Problem(what=f"{key} was not logged by both runs", why="there is nothing to compare")
    for key, (a, b) in found.items():
        if not _distance(a, b) <= tolerance:
            yield Problem(
                what=f"step 1: {key} is {b:.8g} on two ranks and {a:.8g} on one",
                why=f"the same batch and weights must give the same within {tolerance:g}",
                todo="look at how losses and gradients are averaged between ranks (gloo, ReduceOp.AVG)",
            )
