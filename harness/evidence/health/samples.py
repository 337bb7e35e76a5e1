"""The responses of each step with their scores, as verl's own ``trainer.rollout_data_dir`` writes them.

verl's metrics have no deviation and no distribution; these files have every response.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FOLDERS = {"training": "samples", "validation": "validation-samples"}
"""Where a run's folder holds them: ``<step>.jsonl``, one response a line."""
_SHARES = (0.0, 0.1, 0.5, 0.9, 1.0)


@dataclass(frozen=True, kw_only=True)
class Spread:
    """The responses of one step. ``characters``: least, first decile, median, last decile and greatest."""

    step: int
    responses: int
    reward_mean: float
    reward_std: float
    characters: tuple[int, ...]


def read(folder: Path) -> list[Spread]:
    """All steps in order. A file that is being written, or was cut by a kill, is read as far as it goes."""
    files = [path for path in folder.glob("*.jsonl") if path.stem.isdigit()]
    found = (_spread(path) for path in sorted(files, key=lambda path: int(path.stem)))
    return [spread for spread in found if spread is not None]


def _spread(path: Path) -> Spread | None:
    rows = list(_rows(path))
    if not rows:
        return None
    scores = [score for _, score in rows]
    finite = all(math.isfinite(score) for score in scores)
    return Spread(
        step=int(path.stem),
        responses=len(rows),
        reward_mean=statistics.fmean(scores),
        reward_std=statistics.pstdev(scores) if finite else math.nan,
        characters=_shares(sorted(length for length, _ in rows)),
    )


def _rows(path: Path) -> Iterator[tuple[int, float]]:
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            document = json.loads(line)
            yield len(document["output"]), float(document["score"])
        except (ValueError, KeyError, TypeError):
            continue


def _shares(lengths: list[int]) -> tuple[int, ...]:
    return tuple(lengths[round(share * (len(lengths) - 1))] for share in _SHARES)
