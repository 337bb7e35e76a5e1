"""Ranks that add their gradients and do not divide, as gloo's reduce_scatter did in torch 2.7."""

from __future__ import annotations

import functools
from typing import Any

import torch.distributed as dist

original = dist.reduce_scatter_tensor


@functools.wraps(original)
def summed(output: Any, input: Any, op: Any = dist.ReduceOp.SUM, *rest: Any, **named: Any) -> Any:  # noqa: A002
    return original(output, input, dist.ReduceOp.SUM if op == dist.ReduceOp.AVG else op, *rest, **named)


dist.reduce_scatter_tensor = summed
dist.distributed_c10d.reduce_scatter_tensor = summed
