"""Rewards that no trainer can use, for ``--reward PATH:FUNCTION``; and one that asks for the opposite."""

from __future__ import annotations

import math
import random
from typing import Any


def raises(data_source: str, solution_str: str, ground_truth: str, **kwargs: Any) -> float:
    raise ZeroDivisionError("planted in the reward")


def a_string(data_source: str, solution_str: str, ground_truth: str, **kwargs: Any) -> Any:
    return "0.5"


def not_a_number(data_source: str, solution_str: str, ground_truth: str, **kwargs: Any) -> float:
    return math.nan


def another_each_time(data_source: str, solution_str: str, ground_truth: str, **kwargs: Any) -> float:
    return random.random()


def negated_digits(data_source: str, solution_str: str, ground_truth: str, **kwargs: Any) -> float:
    return -sum(char.isdigit() and char.isascii() for char in solution_str) / max(len(solution_str), 1)
