"""A tiny arithmetic task in verl's Parquet layout.

One task serves the ladder (reward ``arithmetic``) and the proof of learning (reward ``digits``): what
is learnt is chosen by the reward function, not by the rows.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from harness.data.rows import write_rows

DATA_SOURCE = "verlock/arithmetic"


def write(folder: Path, *, rows: int, seed: int) -> tuple[Path, Path]:
    """Write ``train.parquet`` with ``rows`` rows and ``val.parquet`` with a quarter as many, at least one.

    The same arguments give the same bytes. Raises :class:`DiskFullError` or :class:`RecordError`.
    """
    if rows < 1:
        raise ValueError(f"a task needs at least one row, not {rows}")
    train = write_rows(folder / "train.parquet", make(rows, seed=seed, split="train"))
    val = write_rows(folder / "val.parquet", make(max(rows // 4, 1), seed=seed, split="val"))
    return train, val


def make(rows: int, *, seed: int, split: str) -> Sequence[dict[str, Any]]:
    """Return the rows: sums and differences of two numbers below 100, none negative."""
    return list(_rows(rows, random.Random(f"{seed}/{split}"), split))


def _rows(rows: int, draw: random.Random, split: str) -> Iterator[dict[str, Any]]:
    for index in range(rows):
        a, b = draw.randrange(100), draw.randrange(100)
        high, low = max(a, b), min(a, b)
        text, answer = draw.choice([(f"{a} + {b}", a + b), (f"{high} - {low}", high - low)])
        yield {
            "data_source": DATA_SOURCE,
            "prompt": [{"role": "user", "content": f"{text} ="}],
            "ability": "math",
            "reward_model": {"style": "rule", "ground_truth": str(answer)},
            "extra_info": {"index": index, "split": split},
        }
