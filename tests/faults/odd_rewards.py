"""A reward function with a fault for each kind of response, for `verlock reward try`."""

from __future__ import annotations

import itertools
import re
from typing import Any

COUNT = itertools.count()


def odd(data_source: str, solution_str: str, ground_truth: str, extra_info: Any = None) -> Any:
    if solution_str.startswith("aaaa"):
        return float(bool(re.match(r"(a+)+$", solution_str)))
    if "9" * 5000 in solution_str:
        return float(int(solution_str.rsplit(maxsplit=1)[-1]))
    if "boxed{\\boxed{" in solution_str:
        return None
    if "NaN" in solution_str:
        return {"score": 1.0}
    if solution_str.startswith("#### 0"):
        return float(next(COUNT))
    return 0.0 if solution_str == ground_truth else 0.5


def batch(data_sources: Any, solution_strs: Any, ground_truths: Any, extra_infos: Any) -> list[float]:
    return [float(text == truth) for text, truth in zip(solution_strs, ground_truths, strict=True)]
