"""From traced bytes to the phases of a PPO step: what is where, and when it is most. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from harness.ladder.memory.settings import RoleSettings, Settings
from harness.ladder.memory.trace import RoleBytes, RolloutBytes


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What there is, in bytes. ``device`` is none where the device shares the host's memory."""

    device: int | None
    host: int


@dataclass(frozen=True, kw_only=True)
class Traced:
    """The bytes of all roles."""

    actor: RoleBytes
    critic: RoleBytes | None
    reference: RoleBytes | None
    rollout: RolloutBytes | None
    """None for an engine of its own, which takes a share of the device."""
    tied: bool
    """Whether input and output embedding are one tensor."""


@dataclass(frozen=True, kw_only=True)
class Phase:
    """``device``: bytes of one rank's device. ``host``: of all ranks of a node."""

    name: str
    device: int
    host: int
    active: tuple[str, ...]
    """The roles that work; all others lie idle."""

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class _Role:
    settings: RoleSettings
    bytes: RoleBytes
    separate: bool
    """Whether the device has memory of its own."""

    @property
    def moments(self) -> int:
        """The optimiser's state, by its own rule: so many tensors in the shape and dtype of each shard."""
        return self.settings.moments * self.bytes.shard

    def idle(self) -> tuple[int, int]:
        """Device and host."""
        weights = self.settings.param_offload and self.separate
        state = self.settings.optimizer_offload and self.separate
        device = (0 if weights else self.bytes.shard) + (0 if state else self.moments)
        host = (self.bytes.pinned if weights else 0) + (
            self.settings.moments * self.bytes.pinned if state else 0
        )
        return device, host

    def infer(self, *, entropy: bool = False) -> tuple[int, int]:
        """Weights come to the device, the optimiser's state stays where it lies (BaseEngineCtx)."""
        state = self.settings.optimizer_offload and self.separate
        above = self.bytes.infer_entropy if entropy else self.bytes.infer
        host = self.settings.moments * self.bytes.pinned if state else 0
        return self.bytes.shard + (0 if state else self.moments) + above, host

    def read_through(self) -> tuple[int, int]:
        """Weights stay on the host, and each unit's shard is copied while it is used (CPUOffloadPolicy)."""
        if not self.separate:
            return self.bytes.shard + self.bytes.infer, 0
        return self.bytes.unit + self.bytes.infer, self.bytes.pinned

    def update(self) -> tuple[int, int]:
        """All of it is on the device, from the first forward to the optimiser's step."""
        # torch/optim/adam.py: on CUDA _multi_tensor_adam makes one more tensor for each parameter (the square
        # roots); on a CPU _single_tensor_adam two for the parameter at hand.
        extra = self.bytes.shard if self.separate else 2 * min(self.bytes.largest, self.bytes.shard)
        above = max(self.bytes.train, self.bytes.gradients + extra)
        return self.bytes.shard + self.moments + above, 0


def phases(settings: Settings, traced: Traced, machine: Machine) -> list[Phase]:
    """The phases in the order in which verl's trainer goes through them."""
    separate = machine.device is not None
    roles = {
        name: _Role(settings=one, bytes=size, separate=separate)
        for name, one, size in (
            ("actor", settings.actor, traced.actor),
            ("critic", settings.critic, traced.critic),
            ("reference", settings.reference, traced.reference),
        )
        if one is not None and size is not None
    }
    resting = {name: one.idle() for name, one in roles.items()}
    resting["rollout"] = _rollout_idle(settings, traced, machine)
    nodes = settings.ranks_per_node
    found = [_start(roles, traced, nodes)]
    for name, active, (device, host) in _busy(settings, traced, machine, roles):
        others = [size for role, size in resting.items() if role not in active]
        found.append(
            Phase(
                name=name,
                active=active,
                device=device + sum(size for size, _ in others),
                host=nodes * (host + sum(size for _, size in others)),
            )
        )
    return found


def _start(roles: dict[str, _Role], traced: Traced, ranks: int) -> Phase:
    """Building: whole weights on the host, of every rank where they are tied, else of the first alone.

    verl builds untied models on the meta device on all ranks but the first (get_init_weight_context_manager).
    """
    whole = max(one.bytes.full for one in roles.values()) * (ranks if traced.tied else 1)
    kept = sum(one.idle()[1] for one in roles.values()) * ranks
    device = sum(one.idle()[0] for one in roles.values())
    return Phase(name="start", active=tuple(roles), device=device, host=whole + kept)


def _rollout_idle(settings: Settings, traced: Traced, machine: Machine) -> tuple[int, int]:
    if traced.rollout is None:
        return (0 if settings.rollout.sleeps else int(settings.rollout.share * (machine.device or 0))), 0
    if machine.device is None:
        return traced.rollout.weights, 0
    return 0, traced.rollout.weights  # the hf rollout moves its weights to the host while it sleeps


def _busy(
    settings: Settings, traced: Traced, machine: Machine, roles: dict[str, _Role]
) -> Iterator[tuple[str, tuple[str, ...], tuple[int, int]]]:
    actor = roles["actor"]
    if traced.rollout is None:
        share = int(settings.rollout.share * (machine.device or 0))
        yield "rollout", ("rollout",), (share, 0)
        sent = settings.rollout.bucket
    else:
        share = traced.rollout.weights
        yield "rollout", ("rollout",), (share + traced.rollout.generate, 0)
        sent = 0
    device, host = actor.infer(entropy=True)
    yield "old log-probabilities", ("actor",), (device, host)
    if "reference" in roles:
        yield "reference log-probabilities", ("reference",), roles["reference"].read_through()
    if "critic" in roles:
        yield "values", ("critic",), roles["critic"].infer()
        yield "critic update", ("critic",), roles["critic"].update()
    yield "actor update", ("actor",), actor.update()
    # One tensor after another is gathered (get_per_tensor_param): its shard on the device, then the whole.
    idle_device, idle_host = actor.idle()
    both = ("actor", "rollout")
    yield "weights to rollout", both, (idle_device + 2 * actor.bytes.largest + sent + share, idle_host)
