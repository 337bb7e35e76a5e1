"""What stands in, on this machine, for what a command asks and is not here; and what that leaves open."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from harness.ladder.preflight.settings import ACTOR, ROLLOUT, Settings
from harness.ladder.preflight.static import Inspected

MERGE = "actor_rollout_ref.model.lora.merge"


@dataclass(frozen=True, kw_only=True)
class Stand:
    """What stands in for what is not here. ``prompt`` is the longest chosen prompt in tokens."""

    model: str | None
    data: str | None
    reward: str | None
    prompt: int
    rows: int


def of(inspected: Inspected, *, stand_in: bool, prompt: int = 0, rows: int = 0) -> Stand:
    """What stands in for the command's model, data and reward. ``stand_in``: rows may, too."""
    facts = inspected.facts
    return Stand(
        model=None if facts.model is None or facts.model.kind == "folder" else facts.model.given,
        data=", ".join(file.given for file in facts.train) if stand_in and not files(inspected) else None,
        reward=reward(inspected)[1],
        prompt=prompt,
        rows=rows,
    )


def files(inspected: Inspected) -> list[Path]:
    """The command's training files that are here and have rows."""
    return [
        inspected.asked.path(file.given)
        for file in inspected.facts.train
        if file.checked and file.checked.rows
    ]


def reward(inspected: Inspected) -> tuple[str, str | None]:
    """The climb's ``--reward``, and what a mock stands in for."""
    found, s = inspected.facts.reward, Settings(inspected.config or {})
    if found is not None and not found.present:
        return "mock", found.path
    if found is not None:
        return f"{inspected.asked.path(found.path)}:{found.name}", None
    if s.flag("reward.reward_model.enable"):
        return "mock", f"the model {s.get('reward.reward_model.model_path')}"
    sources = inspected.facts.names.sources
    if any(known is False for known in sources.values()):
        return "mock", ", ".join(source for source, known in sources.items() if known is False)
    return "rule", None


def left_open(inspected: Inspected, *, stand_in: bool) -> list[str]:
    """What a judgement without a run cannot know, and a run on this machine would not show either."""
    if inspected.config is None:
        return []
    return not_verified(Settings(inspected.config), of(inspected, stand_in=stand_in))


def not_verified(s: Settings, stand: Stand) -> list[str]:
    """What the run on this machine says nothing about."""
    name = s.text(f"{ROLLOUT}.name")
    engine = f"the rollout engine {name}" if name not in {None, "", "???"} else "a rollout engine"
    parts = [f"{engine}: its memory, its kernels, its speed"]
    if s.world > 1:
        parts.append(f"{s.world} GPUs: communication, sharding, memory of each")
    if stand.model is not None:
        parts.append(f"the model {stand.model}: its weights, its template and tokenizer, its memory")
        limit = s.get("data.max_prompt_length")
        parts.append(f"the rows' lengths against data.max_prompt_length={limit}: they need its tokenizer")
    if stand.data is not None:
        parts.append(f"the data {stand.data}: word problems of the same layout stood in")
    if stand.reward is not None:
        parts.append(f"the reward of {stand.reward}: a mock stood in")
    strategy = s.text(f"{ACTOR}.strategy")
    if strategy not in {"fsdp", "fsdp2"}:
        parts.append(f"the training engine {strategy}")
    if s.flag(MERGE):
        parts.append("adapters merged into the weights for the rollout: here they are sent as they are")
    if s.flag("distillation.enabled"):
        parts.append("distillation: the teachers and their loss")
    if s.flag("algorithm.filter_groups.enable"):
        parts.append(
            "the filter of groups: an untrained model's groups are all alike, and none would be left"
        )
    mode = s.text("trainer.v1.trainer_mode")
    if s.get("trainer.use_v1") is True and mode not in {None, "sync"}:
        parts.append(f"the trainer mode {mode}")
    return parts
