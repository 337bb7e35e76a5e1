"""verl's view of a rollout replica: one server actor beside the training workers."""

from __future__ import annotations

import asyncio

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from verl.workers.rollout.replica import RolloutReplica

from harness.adapt.rollout.adapter import server_name
from harness.adapt.rollout.server import RolloutServer


class _Replica(RolloutReplica):
    """A replica whose server runs on the node of its first training worker."""

    rollout_name = ""

    async def launch_servers(self) -> None:
        """Start the server actor. Tensor parallelism would need a second process: refused."""
        if self.world_size != 1:
            message = f"the {self.rollout_name} rollout runs in one process: set tensor_model_parallel_size=1"
            raise ValueError(message)
        node = await self.workers[0].__ray_call__.remote(
            lambda _self: ray.get_runtime_context().get_node_id()
        )
        actor = ray.remote(type(f"{self.rollout_name.capitalize()}RolloutServer", (RolloutServer,), {}))
        server = actor.options(
            # 0.7 has one group of replicas, and no name for it.
            name=server_name(self.rollout_name, self.replica_rank) + getattr(self, "name_suffix", ""),
            scheduling_strategy=NodeAffinitySchedulingStrategy(node_id=node, soft=False),
            max_concurrency=self.max_concurrency,
        ).remote(
            name=self.rollout_name,
            config=self.config,
            model_config=self.model_config,
            replica_rank=self.replica_rank,
        )
        self.servers = [server]
        await asyncio.gather(*[s.launch_server.remote() for s in self.servers])
        self._server_handle = server
        address, port = await server.get_server_address.remote()
        self._server_address = f"{address}:{port}/{self.replica_rank}"

    async def sleep(self) -> None:
        """Let running requests end, then give device memory back."""
        await asyncio.gather(*[s.wait_for_requests_to_drain.remote() for s in self.servers])
        await asyncio.gather(*[s.sleep.remote() for s in self.servers])


class HfReplica(_Replica):
    """``actor_rollout_ref.rollout.name=hf``."""

    rollout_name = "hf"


class MockReplica(_Replica):
    """``actor_rollout_ref.rollout.name=mock``."""

    rollout_name = "mock"


REPLICAS: dict[str, type[_Replica]] = {"hf": HfReplica, "mock": MockReplica}
