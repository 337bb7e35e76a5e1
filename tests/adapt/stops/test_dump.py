"""What one looks for in a value is in its line, and no value can break the dump."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tensordict import TensorDict

from harness.adapt.stops.dump import described, one

NAN = float("nan")


class Hostile:
    """Raises wherever it is looked at."""

    def __repr__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (torch.tensor([1.0, 2.0, 3.0]), "tensor float32 [3] cpu min 1 max 3 mean 2"),
        (torch.tensor([1.0, NAN, float("inf")]), "tensor float32 [3] cpu min 1 max 1 mean 1, 2 NOT FINITE"),
        (torch.tensor([NAN]), "tensor float32 [1] cpu, 1 NOT FINITE"),
        (torch.tensor([[1, 5]]), "tensor int64 [1, 2] cpu min 1 max 5"),
        (torch.empty(0, 4), "tensor float32 [0, 4] cpu"),
        (torch.empty(3, device="meta"), "tensor float32 [3] meta"),
        (torch.tensor([1.0, 3.0], dtype=torch.bfloat16), "tensor bfloat16 [2] cpu min 1 max 3 mean 2"),
        (np.array([1.5, 2.0]), "ndarray float64 [2] [1.5, 2.0]"),
        ("x" * 5000, "'" + "x" * 97),
        ("two\nlines", "'two\\nlines'"),
    ],
)
def test_one_line_says_what_matters(value: Any, said: str) -> None:
    line = one(value)
    assert line.startswith(said)
    assert "\n" not in line
    assert len(line) <= 300


def test_mappings_are_shown_item_by_item() -> None:
    batch = TensorDict({"a": torch.zeros(2, 3), "b": torch.ones(2)}, batch_size=2)
    assert list(described("batch", batch)) == [
        "    batch = TensorDict of 2",
        "        a = tensor float32 [2, 3] cpu min 0 max 0 mean 0",
        "        b = tensor float32 [2] cpu min 1 max 1 mean 1",
    ]
    many = list(described("many", {n: n for n in range(100)}))
    assert many[-1].strip() == "and 88 more"


def test_a_value_that_cannot_be_shown_says_so() -> None:
    (line,) = described("bad", Hostile())
    assert "Hostile" in line
