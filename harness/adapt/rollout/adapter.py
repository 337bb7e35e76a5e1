"""The trainer's side of a rollout: pushes weights to the server, through verl's own update path."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import ray
import torch
from verl.workers.rollout.base import BaseRollout

from harness.adapt.rollout import lora
from harness.adapt.rollout.weights import Digest, buckets, pack


def server_name(rollout: str, replica_rank: int) -> str:
    """The Ray actor name under which replica and adapter meet."""
    return f"verlock_{rollout}_server_{replica_rank}"


class ServerAdapter(BaseRollout):
    """Lives in each training worker; the first rank of a replica talks to the replica's server."""

    def __init__(
        self, config: Any, model_config: Any, device_mesh: Any, replica_rank: int = -1, **_unused: Any
    ) -> None:
        """Work out which replica this rank feeds (verl/workers/engine_workers.py builds one per rank)."""
        super().__init__(config, model_config, device_mesh)
        world = (
            self.config.tensor_model_parallel_size
            * self.config.data_parallel_size
            * self.config.pipeline_model_parallel_size
        )
        rank = int(os.environ["RANK"])
        self.replica_rank = rank // world if replica_rank == -1 else replica_rank
        self.is_leader_rank = rank % world == 0
        self._server: Any = None

    def _handle(self) -> Any:
        if self._server is None:
            self._server = ray.get_actor(server_name(self.config.name, self.replica_rank))
        return self._server

    async def resume(self, tags: list[str]) -> None:
        """Bring what ``tags`` names (weights, kv_cache) back to the rollout's device."""
        if self.is_leader_rank and "weights" in tags:
            await self._handle().wake_up.remote()

    async def release(self) -> None:
        """Give the rollout's device memory back."""
        if self.is_leader_rank:
            await self._handle().sleep.remote()

    async def update_weights(
        self,
        weights: Iterator[tuple[str, torch.Tensor]],
        wire_format: str = "named_tensors",
        global_steps: int | None = None,
        peft_config: Any = None,
        base_sync_done: bool = True,
        **_unused: Any,
    ) -> None:
        """Send all weights and check that the server holds the bits that were sent.

        Every rank must drain ``weights``: each tensor is gathered by a collective call. With ``peft_config``
        they are LoRA adapters, or with ``base_sync_done`` false the weights that adapters are for.
        """
        if wire_format != "named_tensors":
            message = f"the {self.config.name} rollout takes named tensors, not {wire_format}"
            raise NotImplementedError(message)
        adapters = peft_config is not None and base_sync_done
        scale = lora.scale_of(peft_config) if adapters else None
        weights = lora.unwrapped(weights) if peft_config is not None else weights
        if not self.is_leader_rank:
            for _ in weights:
                continue
            return
        sent, answer = Digest(), None
        stream = buckets(weights)
        bucket = next(stream, None)
        while bucket is not None:
            following = next(stream, None)
            for name, tensor in bucket:
                sent.add(name, tensor)
            answer = await self._handle().load_weights.remote(
                pack(bucket), last=following is None, scale=scale, final=base_sync_done
            )
            bucket = following
        if answer != sent.hexdigest():
            message = (
                f"weights changed on their way to the rollout server: sent {sent.hexdigest()}, holds {answer}"
            )
            raise RuntimeError(message)
        if global_steps is not None:
            await self._handle().set_global_steps.remote(global_steps)
