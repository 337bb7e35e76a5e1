"""verl's v1 replay buffer, with a batch in the order of the data instead of the order of arrival.

verl 0.9.1 collects trajectories as their agent loops end (v1/replay_buffer.py, ``_materialize_batch``
walks TransferQueue's snapshot), so two equal runs split a batch differently into mini batches and their
losses differ. This is verl's own extension point: ``trainer.v1.sampler.custom_sampler``.
"""

from __future__ import annotations

from typing import Any

from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer

POLL_SECONDS = 0.05


class OrderedReplayBuffer(ReplayBuffer):
    """For the ``sync`` trainer mode. verl does not hand DAPO's group filter to a custom sampler."""

    def __init__(self, **settings: Any) -> None:
        """Look for finished groups often: verl's 2 s between two looks are 2 s of each step.

        Measured on the tiny model: 2.4 s a step, of which 0.4 s are work.
        """
        super().__init__(**settings, poll_interval=POLL_SECONDS)

    def _materialize_batch(
        self,
        partition_id: str,
        selected_prompt_uids: list[str],
        partition_snapshot: dict[str, dict[str, Any]],
    ) -> Any:
        """Sort by the prompt's place in the submitted batch, then by session and output.

        Keys are ``{uid}_{session_id}_{index}``; prompts were registered in the data's order.
        """
        place = {uid: number for number, uid in enumerate(self.prompt_global_steps[partition_id])}

        def order(key: str) -> tuple[int, int, int]:
            uid, session, index = key.split("_")
            return place.get(uid, len(place)), int(session), int(index)

        ordered = {key: partition_snapshot[key] for key in sorted(partition_snapshot, key=order)}
        return super()._materialize_batch(partition_id, selected_prompt_uids, ordered)
