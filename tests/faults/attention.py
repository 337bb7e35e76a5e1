"""Planted: attention that is wrong in a way that still gives finite losses and a falling reward curve.

A module for VERL_USE_EXTERNAL_MODULES; VERLOCK_FAULT names the fault at each call.
"""

from __future__ import annotations

import os
from typing import Any

import torch
import wrapt


def _scores(query: Any, key: Any, scaling: float | None) -> Any:
    groups = query.shape[1] // key.shape[1]
    key = key.repeat_interleave(groups, dim=1)
    return query @ key.transpose(2, 3) * (query.shape[-1] ** -0.5 if scaling is None else scaling)


def _plant(module: Any) -> None:
    def attention(
        _layer: Any, query: Any, key: Any, value: Any, mask: Any, scaling: Any = None, **_: Any
    ) -> Any:
        fault = os.environ["VERLOCK_FAULT"]
        scores = _scores(query, key, scaling)
        length = scores.shape[-1]
        hidden = torch.ones(length, length, dtype=torch.bool).triu(1)
        if mask is not None:
            hidden = ~mask if mask.dtype == torch.bool else mask < 0
        if fault == "sees the future":
            hidden = torch.zeros_like(hidden)
        weights = torch.softmax(scores.masked_fill(hidden, -1e9), dim=-1)
        if fault == "double softmax":
            weights = torch.softmax(weights.masked_fill(hidden, -1e9), dim=-1)
        values = value.repeat_interleave(query.shape[1] // value.shape[1], dim=1)
        return (weights @ values).transpose(1, 2).contiguous(), None

    module.ALL_ATTENTION_FUNCTIONS.register("sdpa", attention)


wrapt.register_post_import_hook(_plant, "transformers.modeling_utils")
