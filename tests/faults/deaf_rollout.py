"""Planted: the rollout takes new weights, says so, and keeps its old ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.adapt.rollout.generator import Generator


def _deaf(_self: Any, tensors: Mapping[str, Any]) -> set[str]:
    return set(tensors)


Generator.load_weights = _deaf  # type: ignore[method-assign]
