"""Rewards that no trainer can use, for ``--reward PATH:FUNCTION``; and one that asks for the opposite."""

from __future__ import annotations

import math
import os
import random
import sys
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


def of_many_lines(data_source: str, solution_str: str, ground_truth: str, **kwargs: Any) -> float:
    raise ValueError("première ligne\x1b[31m\nRuntimeError: not me\n")


def leaves(data_source: str, solution_str: str, ground_truth: str, **kwargs: Any) -> float:
    sys.exit(0)


def leaves_at_once(data_source: str, solution_str: str, ground_truth: str, **kwargs: Any) -> float:
    os._exit(0)


def from_another(data_source: str, solution_str: str, ground_truth: str, **kwargs: Any) -> float:
    try:
        return {}[solution_str]
    except KeyError as error:
        raise RuntimeError("could not reach the judge") from error


def interrupts(data_source: str, solution_str: str, ground_truth: str, **kwargs: Any) -> float:
    raise KeyboardInterrupt
