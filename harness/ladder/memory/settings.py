"""What of verl's composed configuration decides the bytes, and what of it cannot be planned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from harness.adapt.rollout.rows import MOST_ROWS
from harness.errors import MemoryPlanError, Problem

DtypeName = Literal["float32", "float16", "bfloat16"]
DTYPES: dict[str, DtypeName] = {
    "fp32": "float32",
    "float32": "float32",
    "fp16": "float16",
    "float16": "float16",
    "bf16": "bfloat16",
    "bfloat16": "bfloat16",
}
MOMENTS = {"AdamW": 2, "Adam": 2}
"""Tensors that the optimiser keeps for each parameter: exp_avg, exp_avg_sq (torch/optim/adam.py)."""


@dataclass(frozen=True, kw_only=True)
class Dtypes:
    """Number formats of a role."""

    weights: DtypeName
    """And so of gradients and optimiser state."""
    compute: DtypeName
    reduce: DtypeName


@dataclass(frozen=True, kw_only=True)
class RoleSettings:
    """Actor, critic or reference policy. Batch sizes in sequences on one rank."""

    kind: Literal["language_model", "value_model"]
    dtypes: Dtypes
    micro: int
    infer: int
    accumulates: bool = False
    """Whether a mini batch is more than one micro batch."""
    entropy: bool = False
    """Whether the update computes the entropy."""
    checkpointing: bool = True
    reshard: bool = True
    param_offload: bool = False
    optimizer_offload: bool = False
    moments: int = 0


@dataclass(frozen=True, kw_only=True)
class RolloutSettings:
    """The rollout on one rank."""

    name: str
    dtype: DtypeName
    rows: int
    share: float
    """Of the device, what vLLM takes while it is awake."""
    sleeps: bool
    bucket: int
    """Bytes in which weights are sent."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Everything that the plan depends on."""

    world: int
    ranks_per_node: int
    prompt: int
    response: int
    actor: RoleSettings
    critic: RoleSettings | None
    reference: RoleSettings | None
    rollout: RolloutSettings
    assumed: tuple[str, ...] = ()
    """Keys without a value, and what was taken for it."""


def offloaded(settings: Settings, *, on: bool) -> Settings:
    """The same with weights and optimiser state of all that is trained on the host, or none of it."""

    def role(one: RoleSettings | None) -> RoleSettings | None:
        return one and replace(one, param_offload=on, optimizer_offload=on)

    actor = replace(settings.actor, param_offload=on, optimizer_offload=on)
    return replace(settings, actor=actor, critic=role(settings.critic))


def read(config: Any) -> Settings:
    """The settings of a composed configuration.

    Raises:
        MemoryPlanError: with every setting whose bytes this plan does not know.
    """
    problems = list(_unplanned(config))
    if problems:
        raise MemoryPlanError(*problems)
    trainer, rollout = config.trainer, config.actor_rollout_ref.rollout
    world = int(trainer.n_gpus_per_node) * int(trainer.nnodes)
    reader = _Reader(config, world)
    actor = reader.actor()
    critic = reader.critic() if config.algorithm.adv_estimator == "gae" else None
    uses_reference = config.actor_rollout_ref.actor.use_kl_loss or config.algorithm.use_kl_in_reward
    return Settings(
        world=world,
        ranks_per_node=int(trainer.n_gpus_per_node),
        prompt=int(config.data.max_prompt_length),
        response=int(config.data.max_response_length),
        actor=actor,
        critic=critic,
        reference=reader.reference() if uses_reference else None,
        rollout=RolloutSettings(
            name=str(rollout.name),
            dtype=DTYPES[str(rollout.dtype)],
            rows=min(int(rollout.max_num_seqs), MOST_ROWS),
            share=float(rollout.gpu_memory_utilization),
            sleeps=bool(rollout.free_cache_engine),
            bucket=int(rollout.checkpoint_engine.update_weights_bucket_megabytes) << 20,
        ),
        assumed=tuple(reader.assumed),
    )


class _Reader:
    def __init__(self, config: Any, world: int) -> None:
        self.root = config
        self.world = world
        self.assumed: list[str] = []
        # Sequences of a step, and what a rank gets of them.
        self.group = int(config.actor_rollout_ref.rollout.n)
        self.step = max(1, int(config.data.train_batch_size) * self.group // world)

    def actor(self) -> RoleSettings:
        node = self.root.actor_rollout_ref.actor
        rollout = self.root.actor_rollout_ref.rollout
        return self._trained(
            "language_model",
            node,
            node.fsdp_config,
            self.root.actor_rollout_ref.model,
            micro="actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu",
            infer=self._size(
                rollout.log_prob_micro_batch_size_per_gpu,
                "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu",
            ),
            entropy=bool(node.calculate_entropy or node.entropy_coeff != 0),
        )

    def critic(self) -> RoleSettings:
        node = self.root.critic
        name = "critic.ppo_micro_batch_size_per_gpu"
        infer = self._size(node.ppo_micro_batch_size_per_gpu, name, note=False)
        return self._trained(
            "value_model", node, node.fsdp, node.model, micro=name, infer=infer, entropy=False
        )

    def reference(self) -> RoleSettings:
        node = self.root.actor_rollout_ref.ref
        key = "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu"
        return RoleSettings(
            kind="language_model",
            micro=0,
            infer=min(self._size(node.log_prob_micro_batch_size_per_gpu, key), self.step),
            checkpointing=bool(self.root.actor_rollout_ref.model.enable_gradient_checkpointing),
            reshard=bool(node.fsdp_config.reshard_after_forward),
            # verl forces CPUOffloadPolicy on a model that is only read (_build_fsdp_module).
            param_offload=True,
            dtypes=_dtypes(node.fsdp_config, trained=False),
        )

    def _trained(
        self, kind: Literal["language_model", "value_model"], node: Any, fsdp: Any, model: Any, **given: Any
    ) -> RoleSettings:
        mini = max(1, int(node.ppo_mini_batch_size) * self.group // self.world)
        micro = min(self._size(node.ppo_micro_batch_size_per_gpu, given["micro"]), mini)
        # offload_policy is FSDP2's own: parameters, gradients and optimiser stay on the host.
        return RoleSettings(
            kind=kind,
            micro=micro,
            infer=min(given["infer"], self.step),
            accumulates=mini > micro,
            entropy=given["entropy"],
            checkpointing=bool(model.enable_gradient_checkpointing),
            reshard=bool(fsdp.reshard_after_forward),
            param_offload=bool(fsdp.param_offload),
            optimizer_offload=bool(fsdp.optimizer_offload),
            moments=MOMENTS[str(node.optim.optimizer)],
            dtypes=_dtypes(fsdp, trained=True),
        )

    def _size(self, value: Any, key: str, *, note: bool = True) -> int:
        if value is None:
            if note:
                self.assumed.append(f"{key}=1")
            return 1
        return int(value)


def _dtypes(fsdp: Any, *, trained: bool) -> Dtypes:
    """verl's own defaults: fp32 weights where they are trained, bf16 else, and bf16 to compute in."""
    mixed: Mapping[str, Any] = fsdp.get("mixed_precision") or {}
    return Dtypes(
        weights=DTYPES[str(fsdp.model_dtype or ("fp32" if trained else "bf16"))],
        compute=DTYPES[str(mixed.get("param_dtype", "bf16"))],
        reduce=DTYPES[str(mixed.get("reduce_dtype", "fp32"))],
    )


def _unplanned(config: Any) -> list[Problem]:
    """Settings that take memory in ways that the trace does not follow; a wrong number would be worse."""
    actor, model = config.actor_rollout_ref.actor, config.actor_rollout_ref.model
    told = {
        "actor_rollout_ref.actor.strategy": (actor.strategy != "fsdp2", "only fsdp2 is traced"),
        "critic.strategy": (config.critic.strategy != "fsdp2", "only fsdp2 is traced"),
        "actor_rollout_ref.actor.use_dynamic_bsz": (actor.use_dynamic_bsz, "batches are cut by tokens"),
        "actor_rollout_ref.model.lora_rank": (model.lora_rank > 0, "adapters are not traced"),
        "actor_rollout_ref.model.use_fused_kernels": (
            model.use_fused_kernels,
            "Triton kernels are not traced",
        ),
        "actor_rollout_ref.model.use_liger": (model.use_liger, "Triton kernels are not traced"),
        "actor_rollout_ref.model.use_remove_padding": (
            model.use_remove_padding,
            "packed rows are not traced",
        ),
        "actor_rollout_ref.model.enable_activation_offload": (model.enable_activation_offload, "not traced"),
    }
    for role, fsdp in (
        ("actor_rollout_ref.actor.fsdp_config", actor.fsdp_config),
        ("critic.fsdp", config.critic.fsdp),
    ):
        told[f"{role}.offload_policy"] = (fsdp.offload_policy, "use param_offload and optimizer_offload")
        told[f"{role}.ulysses_sequence_parallel_size"] = (
            fsdp.ulysses_sequence_parallel_size > 1,
            "not traced",
        )
        told[f"{role}.fsdp_size"] = (fsdp.fsdp_size > 0, "only sharding over all ranks is traced")
    for role, node in (("actor_rollout_ref.actor", actor), ("critic", config.critic)):
        known = node.optim.optimizer in MOMENTS and node.optim.optimizer_impl == "torch.optim"
        told[f"{role}.optim.optimizer"] = (not known, f"the state of {', '.join(MOMENTS)} alone is known")
    return [
        Problem(
            what=f"{key}: its memory cannot be planned", where=key, why=why, todo="leave it at its default"
        )
        for key, (wrong, why) in told.items()
        if wrong
    ]
