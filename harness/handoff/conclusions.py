"""For each rung of a local run: does what it showed hold on the target, and why or why not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from harness.evidence.model import Run
from harness.handoff.manifest import Part
from harness.ladder.options import ORDER
from harness.profiles import Profile

Answer = Literal["yes", "partly", "no"]


class Conclusion(Part):
    """One rung."""

    rung: str
    status: Literal["passed", "failed", "interrupted", "not climbed"]
    transfers: Answer
    reason: str


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What the answers rest on."""

    source: Profile
    target: Profile
    rollout: str
    reward: str
    tiny_model: bool
    tiny_data: bool
    device: str
    """What trained: ``cpu`` also in a rehearsal of a profile for GPUs."""
    image: str | None
    """The image that the run was made in."""

    @property
    def same_software(self) -> bool:
        """Whether both profiles install the same verl, transformers and ray."""
        return all(
            getattr(self.source.software, name) == getattr(self.target.software, name)
            for name in ("verl", "transformers", "ray")
        )

    @property
    def arithmetic(self) -> str | None:
        """What computes otherwise on the target; none if nothing does."""
        here, there = self.source, self.target
        pairs = {
            "dtype": ("float32" if self.device == "cpu" else here.numerics.dtype, there.numerics.dtype),
            "attention": (here.numerics.attention, there.numerics.attention),
            "device": (self.device, there.run.device),
        }
        differ = [f"{name} {one} here, {other} there" for name, (one, other) in pairs.items() if one != other]
        return ", ".join(differ) or None


def conclusions(run: Run, source: Profile, target: Profile) -> tuple[Conclusion, ...]:
    """An answer for every rung of the ladder. Pure."""
    facts = Facts(
        source=source,
        target=target,
        rollout=str(run.settings.get("rollout", source.run.rollout)),
        reward=str(run.settings.get("reward", "rule")),
        tiny_model=run.settings.get("model") == "tiny",
        tiny_data=run.settings.get("data") == "tiny",
        device=run.device or "cpu",
        image=run.image.manifest if run.image else None,
    )
    status = {rung.name: rung.status for rung in run.rungs}
    return tuple(_conclude(name, status.get(name), facts) for name in ORDER)


def _conclude(
    name: str, status: Literal["passed", "failed", "interrupted"] | None, facts: Facts
) -> Conclusion:
    if status != "passed":
        said = "It was not climbed" if status is None else f"It {status}"
        return Conclusion(
            rung=name, status=status or "not climbed", transfers="no", reason=f"{said}: nothing was shown."
        )
    transfers, reason = _RUNGS[name](facts)
    return Conclusion(rung=name, status=status, transfers=transfers, reason=reason)


def _env(facts: Facts) -> tuple[Answer, str]:
    if facts.source.name != facts.target.name:
        return "no", f"Another lock: {facts.source.name} here, {facts.target.name} there."
    if facts.image is None:
        return "partly", "The same lock, but the run was in no image; each node checks its own."
    return (
        "partly",
        "The same bytes in the image; driver and device are the node's, and the job climbs env there.",
    )


def _data(facts: Facts) -> tuple[Answer, str]:
    if facts.tiny_data or facts.tiny_model:
        return "no", "It read the tiny task or tokenizer; check your own rows: verlock data check."
    if not facts.same_software:
        return "partly", "The same files, read by another verl or transformers."
    return "yes", "Rows, tokenizer and chat template are files; the same ones are read the same way."


def _forward(facts: Facts) -> tuple[Answer, str]:
    if not facts.same_software:
        return "no", "Another verl or transformers computes the losses."
    if facts.arithmetic:
        return "partly", f"The losses' formulas hold; rounding and kernels do not: {facts.arithmetic}."
    return "yes", "The same code computes in the same format on the same kind of device."


def _rollout(facts: Facts) -> tuple[Answer, str]:
    if facts.rollout != facts.target.run.rollout:
        return "no", f"{facts.rollout} generated here, {facts.target.run.rollout} does there."
    if facts.arithmetic:
        return "partly", f"The same engine; its agreement with the trainer is not shown: {facts.arithmetic}."
    return "yes", "The same engine in the same format on the same kind of device."


def _reward(facts: Facts) -> tuple[Answer, str]:
    if facts.reward == "mock":
        return "no", "The reward was mocked."
    return "yes", "A function of text, on the CPU on both sides."


def _ppo_mock(facts: Facts) -> tuple[Answer, str]:
    if not facts.same_software:
        return "no", "Another verl or ray: its interfaces may differ."
    return (
        "partly",
        "Trainer, agent loop and Ray fit together, being the same code; nothing is said of a model.",
    )


def _ppo(facts: Facts) -> tuple[Answer, str]:
    if not facts.same_software:
        return "no", "Another verl, transformers or ray trains."
    limits = [facts.arithmetic] if facts.arithmetic else []
    if facts.rollout != facts.target.run.rollout:
        limits.append(f"rollout {facts.rollout} here, {facts.target.run.rollout} there")
    if facts.tiny_model:
        limits.append("the tiny model here")
    if limits:
        return "partly", f"The trainer's path holds; not its numbers, memory or speed: {'; '.join(limits)}."
    return "yes", "The same trainer, rollout and format on the same kind of device."


def _checkpoint(facts: Facts) -> tuple[Answer, str]:
    if not facts.same_software:
        return "no", "Another verl writes and reads it."
    return (
        "partly",
        "The format holds; a checkpoint is for a number of ranks, and other storage has other faults.",
    )


def _two_ranks(facts: Facts) -> tuple[Answer, str]:
    if not facts.same_software:
        return "no", "Another verl or ray places and joins the ranks."
    here, there = (
        "gloo" if is_cpu else "nccl" for is_cpu in (facts.device == "cpu", facts.target.run.device != "cuda")
    )
    if here != there:
        return "partly", f"Placement and sharding hold; communication does not: {here} here, {there} there."
    return "partly", "The same communication on one machine; the cluster's network is not this machine's."


_RUNGS: dict[str, Callable[[Facts], tuple[Answer, str]]] = {
    "env": _env,
    "data": _data,
    "forward": _forward,
    "rollout": _rollout,
    "reward": _reward,
    "ppo-mock": _ppo_mock,
    "ppo": _ppo,
    "checkpoint": _checkpoint,
    "ppo-2ranks": _two_ranks,
}
