"""verl's single-turn agent loop with a seed for each sample.

verl 0.9.1 gives a request a random id (uuid4) and no seed, so two runs sample differently. Its own
``full_determinism`` numbers requests by ``priority``, which the v1 trainer leaves at 0 for all: every
sample of a group is then the same and GRPO's gradient is 0. Here a sample's seed comes from what is
stable and its own: the data row's index and its place in the group.
"""

from __future__ import annotations

from typing import Any

from verl.experimental.agent_loop.agent_loop import AgentLoopOutput
from verl.experimental.agent_loop.single_turn_agent_loop import SingleTurnAgentLoop

from harness.adapt.rollout.sampling import derive_seed
from harness.adapt.verls import rollout_seed


class SeededSingleTurnAgentLoop(SingleTurnAgentLoop):
    """Registered through ``actor_rollout_ref.rollout.agent.agent_loop_config_path``."""

    async def run(
        self, sampling_params: dict[str, Any], priority: int | None = None, **kwargs: Any
    ) -> AgentLoopOutput:
        """Add the seed, then run verl's loop.

        The v0 trainer numbers samples by ``priority`` (agent_loop.py, ``generate_sequences``); the v1
        trainer has ``session_id`` within a group (v1/agent_loop_tq.py). Releases before 0.9.1 tell a loop
        neither: there the server counts how often a prompt has come in a step (rollout/server.py).
        """
        place = kwargs.get("session_id", priority)
        told = {} if priority is None else {"priority": priority}
        if place is None:
            return await super().run(sampling_params, **kwargs)
        seed = derive_seed(rollout_seed(self.rollout_config), str(kwargs.get("index")), int(place))
        return await super().run({**sampling_params, "seed": seed}, **told, **kwargs)
