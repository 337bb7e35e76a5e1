"""What differs between releases of verl: the keys of its configuration, its trainers, its classes.

The settings are data (``verls.yaml``). A profile and a rung say what they want in the words of the newest
release; :func:`settings` writes it in the words of another. The few classes that differ are below, and
patches carry the versions that they are made for. Nothing else in the harness knows a version of verl.
Imports no verl.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, TypeVar

import yaml
from packaging.version import Version
from pydantic import BaseModel, ConfigDict, Field, JsonValue

from harness.errors import Problem

FILE = Path(__file__).with_suffix(".yaml")
VALUE_HEAD_SINCE = "0.8"
Trainer = Literal["v1", "v0"]
T = TypeVar("T")


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Moved(_Model):
    """A key, or a section, that came with ``since`` and was ``old`` before; none: it was nothing."""

    new: str
    old: str | None = None
    since: str
    reason: str


class Setting(_Model):
    """What releases before ``before`` need in addition; ``cpu``: where they train on a CPU."""

    key: str
    value: JsonValue
    before: str
    cpu: bool = False
    reason: str


class OldRewards(_Model):
    """Where rewards were set, and where they are; releases before ``before`` move the values themselves."""

    before: str
    moved: dict[str, str]


class Verls(_Model):
    """All of ``verls.yaml``."""

    releases: tuple[str, ...]
    trainers: dict[Trainer, str]
    data_endings: dict[str, str]
    old_rewards: OldRewards
    moved: tuple[Moved, ...]
    settings: tuple[Setting, ...]
    keys: dict[str, tuple[str, ...]] = Field(min_length=1)


@cache
def table() -> Verls:
    """The file, read once."""
    return Verls.model_validate(yaml.safe_load(FILE.read_text(encoding="utf-8")))


def here() -> str:
    """The release that is installed here, as its metadata says."""
    return version("verl")


def installed(before: str) -> bool:
    """Whether the verl that is installed here is older than ``before``."""
    return _older(here(), before)


def trainers(verl: str) -> tuple[Trainer, ...]:
    """The trainers that ``verl`` has, its default first."""
    return tuple(name for name, since in table().trainers.items() if not _older(verl, since))


def data_endings(verl: str) -> tuple[str, ...]:
    """The endings of data files that ``verl`` has a reader for."""
    return tuple(ending for ending, since in table().data_endings.items() if not _older(verl, since))


def moved_reward(key: str) -> str | None:
    """The new place of an old key of rewards; none where it is no such key."""
    for old, new in table().old_rewards.moved.items():
        if _within(key, old):
            return new + key.removeprefix(old)
    return None


def moves_rewards(verl: str) -> bool:
    """Whether ``verl`` itself takes a value from the old place of a reward to the new one."""
    return _older(verl, table().old_rewards.before)


def present(key: str, verl: str) -> bool | None:
    """Whether the configuration of ``verl`` has ``key``; none where nobody has looked."""
    releases = table().releases
    bounds = table().keys.get(key)
    if bounds is None or verl not in releases:
        return None
    if not bounds:
        return False
    place = releases.index(verl)
    return releases.index(bounds[0]) <= place <= releases.index(bounds[-1])


def settings(given: Mapping[str, object], verl: str, *, on_cpu: bool) -> dict[str, object]:
    """Keys (with their ``+``) and values as ``verl`` takes them; the same for the newest release."""
    found = written(given, verl)
    found |= {extra.key: extra.value for extra in extras(verl, on_cpu=on_cpu)}
    if _older(verl, VALUE_HEAD_SINCE) and "critic.model.path" in given:
        found |= value_model(Path(str(given["critic.model.path"])))
    return found


def written(given: Mapping[str, T], verl: str) -> dict[str, T]:
    """The same values under the keys that ``verl`` has for them; those that it has none for are left out."""
    return {key: value for old, value in given.items() if (key := at(old, verl)) is not None}


def extras(verl: str, *, on_cpu: bool) -> list[Setting]:
    """What ``verl`` needs beside what the newest release is given."""
    return [one for one in table().settings if _older(verl, one.before) and (on_cpu or not one.cpu)]


def value_model(folder: Path) -> dict[str, object]:
    """What makes an engine of 0.7 load a causal model with a value head: it goes by the architecture's name.

    From 0.8 on it asks for a value model by itself and sets the same (fsdp/transformer_impl.py). The head's
    dropout is 0.1 otherwise, and the values of an update would not be those that the advantages came from.
    """
    try:
        named = json.loads((folder / "config.json").read_text(encoding="utf-8"))["architectures"]
    except (OSError, ValueError, KeyError):
        return {}  # the model's own check says what is wrong with it
    heads = [str(name).replace("ForCausalLM", "ForTokenClassification") for name in named]
    told = {"architectures": heads, "num_labels": 1, "classifier_dropout": 0.0, "summary_dropout_prob": 0.0}
    return {f"+critic.model.override_config.{key}": value for key, value in told.items()}


def at(key: str, verl: str) -> str | None:
    """How ``verl`` writes a key of the newest release; none where it has nothing of the kind."""
    bare = key.lstrip("+")
    for move in table().moved:
        if not _older(verl, move.since) or not _within(bare, move.new):
            continue
        if move.old is None:
            return None
        plus = "+" if key.startswith("+") and not move.old.startswith("+") else ""
        return f"{plus}{move.old}{bare.removeprefix(move.new)}"
    return key


def misplaced(words: Iterable[str], verl: str) -> list[Problem]:
    """Each override whose key is known to be another release's, with the key that is meant here."""
    problems = []
    for word in words:
        key = word.split("=", 1)[0]
        if key.startswith(("+", "~")) or present(key, verl) is not False:
            continue
        problems.append(
            Problem(what=f"verl {verl} has no key {key}", where=key, why=told(key), todo=instead(key, verl))
        )
    return problems


def told(key: str) -> str | None:
    """In which releases a key is; none where nobody has looked."""
    bounds = table().keys.get(key)
    if bounds is None:
        return None
    return f"it is in verl {' to '.join(bounds)}" if bounds else "no release of verl has it"


def renamed(key: str, verl: str) -> str | None:
    """How ``verl`` writes a key of an older or a newer release; none where it does not, or knows the key."""
    if present(key, verl):
        return None
    for move in table().moved:
        old = move.old.lstrip("+") if move.old else None
        if not _older(verl, move.since) and old is not None and _within(key, old):
            return f"{move.new}{key.removeprefix(old)}"
        if _older(verl, move.since) and _within(key, move.new):
            return at(key, verl)
    return None


def instead(key: str, verl: str) -> str | None:
    """What to do in ``verl`` about a key of another release, as a sentence."""
    other = renamed(key, verl)
    if other is not None:
        return f"in verl {verl} it is {other}"
    return f"leave it out: {reason}" if (reason := lost(key, verl)) else None


def lost(key: str, verl: str) -> str | None:
    """Why ``verl`` has nothing for a key of a newer release; none where it has."""
    moves = (m for m in table().moved if m.old is None and _older(verl, m.since) and _within(key, m.new))
    return next((move.reason for move in moves), None)


def rollout_seed(config: Any) -> int:
    """The seed in verl's RolloutConfig, which has a field of its own for it since 0.9.1."""
    own = getattr(config, "seed", None)
    if own is not None:
        return int(own)
    return int((config.engine_kwargs.get("hf") or {}).get("seed") or 0)  # null: as the user has it


def critic_engine(critic: Any) -> tuple[Any, Any]:
    """The engine's and the model's part of verl's CriticConfig: the engine was in the model before 0.8."""
    if hasattr(critic, "fsdp"):
        return critic.engine, critic.model
    return critic.model.fsdp_config, critic.model_config


def value_loss_parts(rows: int, micro_batch: int) -> list[slice]:
    """What verl's value loss is a mean over, before it reports the mean of those means.

    Since 0.9 it is normalised over all rows, as the policy's; before it was over each micro batch.
    """
    size = micro_batch if installed("0.9") else rows
    return [slice(start, start + size) for start in range(0, rows, size)]


def _older(verl: str, since: str) -> bool:
    return Version(verl) < Version(since)


def _within(key: str, section: str) -> bool:
    return key == section or key.startswith(f"{section}.")
