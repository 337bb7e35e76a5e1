"""What two ranks must show: copies are no shards, and another loss than one rank's is no average."""

from __future__ import annotations

import math

import pytest

from harness.evidence.metrics import Step
from harness.ladder import ranks
from harness.ladder.ranks import Held

HALF = Held(elements=50, total=100, sharded=10, parameters=10)
COPY = Held(elements=100, total=100, sharded=0, parameters=10)


@pytest.mark.parametrize(
    ("held", "said"),
    [
        ([HALF, HALF], []),
        (
            [
                Held(elements=52, total=100, sharded=10, parameters=10),
                Held(elements=48, total=100, sharded=10, parameters=10),
            ],
            [],
        ),
        ([COPY, COPY], ["rank 0 holds 100 of the actor's 100", "rank 1 holds 100 of the actor's 100"]),
        ([HALF, COPY], ["rank 1 holds 100"]),
        (
            [HALF, Held(elements=10, total=100, sharded=10, parameters=10)],
            ["hold 60 of the actor's 100 weights together"],
        ),
    ],
)
def test_shards(held: list[Held], said: list[str]) -> None:
    told = [problem.what for problem in ranks.unsharded("actor", held)]
    assert len(told) == len(said), told
    assert all(text in line for text, line in zip(said, told, strict=True)), told


ONE = {"actor/grad_norm": 2.0, "actor/pg_loss": -1e-9, "critic/vf_loss": 0.5, "perf/throughput": 1.0}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, []),
        ({"perf/throughput": 9.0}, []),
        ({"actor/grad_norm": 2.0 * (1 + 1e-6)}, []),
        ({"actor/pg_loss": 2e-9}, []),
        ({"actor/grad_norm": 4.0}, ["actor/grad_norm is 4 on two ranks and 2 on one"]),
        ({"actor/grad_norm": 2.0 * (1 + 1e-3)}, ["actor/grad_norm"]),
        ({"critic/vf_loss": math.nan}, ["critic/vf_loss is nan"]),
        ({"actor/pg_loss": None}, ["actor/pg_loss was not logged by both"]),
    ],
)
def test_agreement(changed: dict[str, float | None], said: list[str]) -> None:
    one, two = Step(step=1, values=ONE), Step(step=1, values=ONE | changed)
    told = [problem.what for problem in ranks.disagreements(one, two)]
    assert len(told) == len(said), told
    assert all(text in line for text, line in zip(said, told, strict=True)), told


def test_nothing_to_compare_is_no_agreement() -> None:
    empty = Step(step=1, values={})
    assert ranks.worst(empty, empty) == math.inf
    assert len(list(ranks.disagreements(empty, empty))) == 2
