"""Rewards that never answer: one waits in Python, one in an endless loop that swallows every exception."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any


def waits(data_source: str, solution_str: str, ground_truth: str, **kwargs: Any) -> float:
    threading.Event().wait()
    return 0.0


def swallows(data_source: str, solution_str: str, ground_truth: str, **kwargs: Any) -> float:
    while True:
        with suppress(Exception):
            threading.Event().wait(0.1)
