"""verl's own training workers in this process: one rank, gloo, no Ray.

``TrainingWorker`` is the class that the real trainer starts in Ray actors. Called directly it shows a
fault of model, loss or dtype in seconds and with one stack.
"""

from __future__ import annotations

import os
import socket
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from harness.adapt import verls
from harness.ladder import compose
from harness.ladder.overrides import for_rung

if TYPE_CHECKING:
    from harness.ladder.context import Context


def _single_rank() -> None:
    """What verl's ``Worker`` reads from the environment, for a world of one."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    os.environ |= {
        "WORLD_SIZE": "1",
        "RANK": "0",
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }


class Workers:
    """Actor and critic, built from the same configuration that the ``ppo`` rung uses."""

    def __init__(self, context: Context) -> None:
        """Compose the configuration; the engines are built on first use."""
        options = context.options
        rung = for_rung(options, context.inputs, rollout=options.rollout, steps=options.steps)
        self.config = compose.compose_config(context.words(rung))
        _single_rank()

    @cached_property
    def model_config(self) -> Any:
        """verl's HFModelConfig: paths, tokenizer, Hugging Face configuration."""
        return self._dataclass(self.config.actor_rollout_ref.model)

    @cached_property
    def rollout_config(self) -> Any:
        """verl's RolloutConfig."""
        return self._dataclass(self.config.actor_rollout_ref.rollout)

    @cached_property
    def actor_config(self) -> Any:
        """verl's ActorConfig, which its PPO loss reads."""
        return self._dataclass(self.config.actor_rollout_ref.actor)

    @cached_property
    def actor(self) -> Any:
        """The policy, with verl's ``ppo_loss``."""
        from verl.workers.utils.losses import ppo_loss

        actor = self.actor_config
        actor.model_config = self.model_config
        worker = self._worker("language_model", actor, actor.engine, self.model_config)
        worker.set_loss_fn(partial(ppo_loss, config=actor))
        return worker

    @cached_property
    def critic(self) -> Any:
        """The value model, with verl's ``value_loss``."""
        from verl.workers.utils.losses import value_loss

        critic = self._dataclass(self.config.critic)
        worker = self._worker("value_model", critic, *verls.critic_engine(critic))
        worker.set_loss_fn(partial(value_loss, config=critic))
        return worker

    @staticmethod
    def _dataclass(node: Any) -> Any:
        from verl.utils.config import omega_conf_to_dataclass

        return omega_conf_to_dataclass(node)

    def _worker(self, kind: str, role: Any, engine: Any, model_config: Any) -> Any:
        from verl.workers.config import TrainingWorkerConfig
        from verl.workers.engine_workers import TrainingWorker

        engine.use_dynamic_bsz = role.use_dynamic_bsz
        for name in ("micro_batch_size_per_gpu", "infer_micro_batch_size_per_gpu"):
            setattr(engine, name, role.ppo_micro_batch_size_per_gpu)
        worker = TrainingWorker(
            TrainingWorkerConfig(
                model_type=kind,
                model_config=model_config,
                engine_config=engine,
                optimizer_config=role.optim,
                checkpoint_config=role.checkpoint,
            )
        )
        worker.reset()
        return worker
