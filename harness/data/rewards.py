"""Reward functions with verl's signature. verl loads this file by its path, in its reward workers.

So it imports only the standard library and nothing of ``harness``. Each takes the response's text
and returns a float between 0 and 1, and depends on nothing else: two runs score alike.
"""

# ruff: noqa: ARG001 - verl passes all of them by name; each function uses those it needs.

from __future__ import annotations

import hashlib
import re
from typing import Any

_DIGITS = frozenset("0123456789")
# Partial credit stays below the exact answer's 1.0: these add up to 0.8.
_PREFIX, _SHARE, _NEARNESS = 0.4, 0.3, 0.1


def digits(
    data_source: str,
    solution_str: str,
    ground_truth: str,
    extra_info: dict[str, Any] | None = None,
    **kwargs: Any,
) -> float:
    """Share of the response's characters that are digits: a task that a random model learns.

    With a byte vocabulary it starts near 10/259 = 0.04; measured 0.99 after 40 steps of GRPO.
    """
    return _share(solution_str)


def arithmetic(
    data_source: str,
    solution_str: str,
    ground_truth: str,
    extra_info: dict[str, Any] | None = None,
    **kwargs: Any,
) -> float:
    """Score 1 when the last number in the response is the answer, else partial credit.

    Partial credit is for the answer's first digits, for the share of digits, and for characters whose
    codes are near those of digits. The last part makes rewards differ from the first step on, when a
    random model's responses mostly hold no digit at all: without differences there is no gradient.
    """
    numbers = re.findall(r"-?[0-9]+", solution_str)
    if numbers and numbers[-1] == ground_truth:
        return 1.0
    text = solution_str.strip()
    matched = next((n for n, (a, b) in enumerate(zip(text, ground_truth, strict=False)) if a != b), None)
    prefix = (min(len(text), len(ground_truth)) if matched is None else matched) / max(len(ground_truth), 1)
    return _PREFIX * prefix + _SHARE * _share(solution_str) + _NEARNESS * _nearness(solution_str)


def mock(
    data_source: str,
    solution_str: str,
    ground_truth: str,
    extra_info: dict[str, Any] | None = None,
    **kwargs: Any,
) -> float:
    """Return a number in [0, 1) made from the text's hash: the reward's interface without its meaning."""
    digest = hashlib.sha256(f"{ground_truth}\0{solution_str}".encode(errors="surrogatepass")).digest()
    return int.from_bytes(digest[:6], "big") / 2**48


def _share(text: str) -> float:
    return sum(char in _DIGITS for char in text) / len(text) if text else 0.0


def _nearness(text: str) -> float:
    distances = (min(abs(ord(char) - ord("4")), 128) for char in text)
    return 1.0 - sum(distances) / (128 * len(text)) if text else 0.0
