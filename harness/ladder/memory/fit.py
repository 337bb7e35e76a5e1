"""Does it fit, and if not, which key first: found by planning again with each key, not by a guess."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from harness.ladder.memory.phases import Machine, Phase
from harness.ladder.memory.settings import Settings

GIB = 1 << 30
DEVICE_RESERVE = GIB
"""Kept free of tensors on a CUDA device: its context and libraries take some hundred MiB, and the allocator's
blocks are never full. A round number, not a measurement: it was set on machines without a GPU."""
HOST_RESERVE = 2 * GIB
"""Python, torch, verl and Ray in all processes of a climb: 1.9 GiB measured with the tiny model."""
Replan = Callable[[Sequence[str]], tuple[Settings, list[Phase]]]


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The fullest phase of device and host, and by how much they are over; negative where there is room."""

    device: Phase
    device_over: int | None
    host: Phase
    host_over: int

    @property
    def fits(self) -> bool:
        """Whether nothing is over."""
        return (self.device_over or 0) <= 0 and self.host_over <= 0

    @property
    def over(self) -> int:
        """Bytes that are too many, of both."""
        return max(0, self.device_over or 0) + max(0, self.host_over)


def judge(phases: Sequence[Phase], machine: Machine, *, ranks: int) -> Verdict:
    """Hold the phases against the machine. On a shared memory each rank's device is the host's memory too."""

    def on_host(phase: Phase) -> int:
        return phase.host + (ranks * phase.device if machine.device is None else 0)

    device = max(phases, key=lambda one: one.device)
    host = max(phases, key=on_host)
    return Verdict(
        device=device,
        device_over=None if machine.device is None else device.device + DEVICE_RESERVE - machine.device,
        host=host,
        host_over=on_host(host) + HOST_RESERVE - machine.host,
    )


def candidates(settings: Settings, *, separate: bool) -> Iterator[tuple[str, ...]]:
    """Keys by what they cost in speed or learning, the least first; those with no effect are left out."""
    yield from _batches(settings)
    if not settings.actor.checkpointing:
        yield ("actor_rollout_ref.model.enable_gradient_checkpointing=true",)
    if settings.critic and not settings.critic.checkpointing:
        yield ("critic.model.enable_gradient_checkpointing=true",)
    if separate:
        yield from _offload(settings)
    if settings.rollout.name == "vllm":
        yield from ((f"actor_rollout_ref.rollout.gpu_memory_utilization={s}",) for s in (0.4, 0.3, 0.2))
    else:
        sizes = [size for size in (32, 8, 1) if size < settings.rollout.rows]
        yield from ((f"actor_rollout_ref.rollout.max_num_seqs={size}",) for size in sizes)
    yield from ((f"data.max_response_length={settings.response // share}",) for share in (2, 4, 8))
    yield from ((f"data.max_prompt_length={settings.prompt // share}",) for share in (2, 4))
    if separate:
        yield from ((f"trainer.n_gpus_per_node={settings.ranks_per_node * share}",) for share in (2, 4, 8))


def _batches(settings: Settings) -> Iterator[tuple[str, ...]]:
    actor, critic, reference = settings.actor, settings.critic, settings.reference
    for size, key in (
        (actor.micro, "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu"),
        (critic.micro if critic else 1, "critic.ppo_micro_batch_size_per_gpu"),
        (actor.infer, "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu"),
        (reference.infer if reference else 1, "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu"),
    ):
        yield from ((f"{key}={smaller}",) for smaller in (size // 2, size // 4, 1) if 0 < smaller < size)


def _offload(settings: Settings) -> Iterator[tuple[str, ...]]:
    for role, key in (
        (settings.critic, "critic.fsdp"),
        (settings.actor, "actor_rollout_ref.actor.fsdp_config"),
    ):
        if role and not role.optimizer_offload:
            yield (f"{key}.optimizer_offload=true",)
        if role and not role.param_offload:
            yield (f"{key}.param_offload=true",)


def advice(replan: Replan, machine: Machine, settings: Settings, verdict: Verdict) -> tuple[str, ...]:
    """The keys that make it fit: one alone where one is enough, else as few as a walk through them finds.

    Empty where even all of them together are not enough.
    """
    helpful: list[tuple[int, tuple[str, ...]]] = []
    for words in candidates(settings, separate=machine.device is not None):
        over = _over(replan, machine, words)
        if over == 0:
            return words
        if over < verdict.over:
            helpful.append((over, words))
    taken: tuple[str, ...] = ()
    least = verdict.over
    for _, words in helpful:
        over = _over(replan, machine, _merged(taken, words))
        if over == 0:
            return _merged(taken, words)
        if over < least:
            taken, least = _merged(taken, words), over
    return ()


def _merged(words: tuple[str, ...], more: tuple[str, ...]) -> tuple[str, ...]:
    keys = {word.partition("=")[0] for word in more}
    return (*(word for word in words if word.partition("=")[0] not in keys), *more)


def _over(replan: Replan, machine: Machine, words: tuple[str, ...]) -> int:
    settings, phases = replan(words)
    return judge(phases, machine, ranks=settings.ranks_per_node).over
