"""Rewards that make a run ill in ways that verl survives, for ``--reward PATH:FUNCTION``."""

from __future__ import annotations

from typing import Any

KEPT: list[bytearray] = []
MIB = 2**20


def constant(data_source: str, solution_str: str, ground_truth: str, **kwargs: Any) -> float:
    return 0.5


def leaks(data_source: str, solution_str: str, ground_truth: str, **kwargs: Any) -> float:
    """4 MiB a call are never given back."""
    KEPT.append(bytearray(b"x") * (4 * MIB))
    return len(set(solution_str)) / 100


def five(data_source: str, solution_str: str, ground_truth: str, **kwargs: Any) -> float:
    """Best at five characters, whatever they say."""
    return 1 - abs(len(solution_str) - 5) / 16


def long(data_source: str, solution_str: str, ground_truth: str, **kwargs: Any) -> float:
    """The longer the better."""
    return len(solution_str) / 16


def hoards(data_source: str, solution_str: str, ground_truth: str, **kwargs: Any) -> float:
    """256 MiB a call, and nothing is given back: the memory ends before the batch does."""
    KEPT.append(bytearray(b"x") * (256 * MIB))
    return len(set(solution_str)) / 100


def asks_for_much(data_source: str, solution_str: str, ground_truth: str, **kwargs: Any) -> float:
    """1 GiB a call that nobody writes to: only a limit on addresses notices."""
    KEPT.append(bytearray(1024 * MIB))
    return len(set(solution_str)) / 100
