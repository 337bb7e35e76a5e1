"""A reward where the tokenizer does not know the model's words: any number, so that a step has a gradient."""

from __future__ import annotations

import random
from typing import Any


def drawn(data_source: str, solution_str: str, ground_truth: str, extra_info: Any = None) -> float:
    """Between 0 and 1; the arguments are verl's."""
    del data_source, solution_str, ground_truth, extra_info
    return random.random()
