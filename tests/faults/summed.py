"""Ranks that add their gradients and do not divide, as gloo's reduce_scatter did in torch 2.7."""

from __future__ import annotations

import functools
from typing import Any

import torch.distributed as dist

# What FSDP2 calls: torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py of 2.13, and of older ones.
NAME = "reduce_scatter_single" if hasattr(dist, "reduce_scatter_single") else "reduce_scatter_tensor"
original = getattr(dist, NAME)


@functools.wraps(original)
def summed(output: Any, input: Any, op: Any = dist.ReduceOp.SUM, *rest: Any, **named: Any) -> Any:  # noqa: A002
    return original(output, input, dist.ReduceOp.SUM if op == dist.ReduceOp.AVG else op, *rest, **named)


setattr(dist, NAME, summed)
setattr(dist.distributed_c10d, NAME, summed)
