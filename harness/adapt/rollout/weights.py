"""Weights on their way from the trainer to the rollout server, and the digest that proves they came."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any

import torch

BUCKET_BYTES = 256 << 20

Packed = list[tuple[str, str, tuple[int, ...], Any]]


def pack(tensors: Iterable[tuple[str, torch.Tensor]]) -> Packed:
    """Name, dtype, shape and raw bytes (a numpy view: Ray hands it over through shared memory)."""
    packed: Packed = []
    for name, tensor in tensors:
        raw = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
        packed.append((name, str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), raw))
    return packed


def unpack(packed: Packed) -> dict[str, torch.Tensor]:
    """Undo :func:`pack`. The tensors share memory with the message: copy them before it goes."""
    out = {}
    for name, dtype, shape, raw in packed:
        # Ray's shared memory is read-only and torch warns of that; the data is only copied from.
        out[name] = torch.frombuffer(memoryview(raw.copy()), dtype=getattr(torch, dtype)).reshape(shape)
    return out


def buckets(
    weights: Iterable[tuple[str, torch.Tensor]], limit: int = BUCKET_BYTES
) -> Iterator[list[tuple[str, torch.Tensor]]]:
    """Group a stream of tensors so that no message is much larger than ``limit`` bytes."""
    bucket: list[tuple[str, torch.Tensor]] = []
    size = 0
    for name, tensor in weights:
        bucket.append((name, tensor))
        size += tensor.numel() * tensor.element_size()
        if size >= limit:
            yield bucket
            bucket, size = [], 0
    if bucket:
        yield bucket


class Digest:
    """SHA-256 over named tensors, independent of the order in which they pass."""

    def __init__(self) -> None:
        """Start with nothing seen."""
        self._parts: dict[str, str] = {}
        self.bytes = 0

    def add(self, name: str, tensor: torch.Tensor) -> None:
        """Take one tensor's bits."""
        raw = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
        self._parts[name] = hashlib.sha256(raw).hexdigest()
        self.bytes += raw.nbytes

    def hexdigest(self) -> str:
        """The digest of all names and their bits."""
        joined = "\n".join(f"{name} {self._parts[name]}" for name in sorted(self._parts))
        return hashlib.sha256(joined.encode()).hexdigest()
