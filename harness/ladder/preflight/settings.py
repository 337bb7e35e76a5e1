"""Reads of a configuration that may hold anything: a value of the wrong type is as good as none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ACTOR = "actor_rollout_ref.actor"
ROLLOUT = "actor_rollout_ref.rollout"
REF = "actor_rollout_ref.ref"


class Settings:
    """A resolved configuration, by dotted keys."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        """Take a plain mapping, as OmegaConf.to_container makes it."""
        self._config = config

    def get(self, key: str) -> Any:
        """The value, or none where a part of the key is missing."""
        node: Any = self._config
        for part in key.split("."):
            if not isinstance(node, Mapping):
                return None
            node = node.get(part)
        return node

    def number(self, key: str, default: int = 0) -> int:
        """The whole number at ``key``; ``default`` for anything else. Wrong types are another rule's."""
        value = self.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) else default

    def some(self, key: str) -> int | None:
        """The whole number at ``key``, or none."""
        value = self.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def flag(self, key: str) -> bool:
        """Whether it is switched on."""
        return self.get(key) is True

    def text(self, key: str) -> str | None:
        """The text at ``key``, or none."""
        value = self.get(key)
        return value if isinstance(value, str) else None

    @property
    def world(self) -> int:
        """GPUs of the training, at least one."""
        return max(self.number("trainer.n_gpus_per_node", 8) * self.number("trainer.nnodes", 1), 1)

    @property
    def tokens(self) -> int:
        """Tokens of the longest sequence."""
        return self.number("data.max_prompt_length") + self.number("data.max_response_length")

    @property
    def critic(self) -> bool:
        """As verl's need_critic."""
        enabled = self.get("critic.enable")
        return bool(enabled) if enabled is not None else self.get("algorithm.adv_estimator") == "gae"

    @property
    def reference(self) -> bool:
        """As verl's need_reference_policy."""
        return self.flag("algorithm.use_kl_in_reward") or self.flag(f"{ACTOR}.use_kl_loss")

    def ulysses(self, section: str) -> int:
        """The sequence-parallel size of a model's engine, at least one."""
        name = "fsdp" if section == "critic" else "fsdp_config"
        keys = (
            f"{section}.{name}.ulysses_sequence_parallel_size",
            f"{section}.ulysses_sequence_parallel_size",
        )
        return max(*(self.number(key, 1) for key in keys), 1)

    @property
    def fsdp(self) -> bool:
        """Whether the actor trains with FSDP."""
        return (self.text(f"{ACTOR}.strategy") or "fsdp").startswith("fsdp")
