"""What a composed configuration names, as it is found here: files, rows, model, reward, variables."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from harness.data.data_check import Checked, check
from harness.ladder import reward_source
from harness.ladder.reward_source import Reward

# Rows whose prompts are rendered: enough to see a template that loses them, and a second of work.
_RENDERED = 2000
_HUB = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
_PATHS = (
    "data.custom_cls.path",
    "data.sampler.class_path",
    "data.tool_config_path",
    "data.function_tool_path",
    "actor_rollout_ref.rollout.multi_turn.tool_config_path",
    "actor_rollout_ref.rollout.multi_turn.interaction_config_path",
    "actor_rollout_ref.rollout.agent.agent_loop_config_path",
    "reward.reward_manager.module.path",
)
_REMOTE = re.compile(r"[a-z][a-z0-9+.-]*://")


@dataclass(frozen=True, kw_only=True)
class DataFile:
    """One entry of data.train_files or data.val_files; ``remote`` is a place that is not this machine."""

    given: str
    key: str
    present: bool
    remote: bool = False
    checked: Checked | None = None


@dataclass(frozen=True, kw_only=True)
class Model:
    """A model's folder, or its name on a hub."""

    given: str
    kind: Literal["hub", "folder", "missing", "remote"]
    positions: int | None = None
    heads: int | None = None
    has_template: bool | None = None


@dataclass(frozen=True, kw_only=True)
class Names:
    """What this verl knows, read from its own registries."""

    estimators: frozenset[str] = frozenset()
    losses: frozenset[str] = frozenset()
    managers: frozenset[str] = frozenset()
    rollouts: frozenset[str] = frozenset()
    loggers: frozenset[str] = frozenset()
    sources: Mapping[str, bool] = field(default_factory=dict)
    """Whether verl's own rule scores a data_source of the user's rows."""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """All that the rules need to know beside the configuration itself."""

    names: Names = field(default_factory=Names)
    train: tuple[DataFile, ...] = ()
    val: tuple[DataFile, ...] = ()
    model: Model | None = None
    reward: Reward | None = None
    environ: Mapping[str, str] = field(default_factory=dict)
    wandb_login: bool = False
    checkpoints: tuple[str, ...] = ()
    missing_paths: tuple[tuple[str, str], ...] = ()
    """Keys of other files that are named and not there."""


def data_files(
    config: Mapping[str, Any], which: str, folder: Path, tokenizer: Any = None
) -> tuple[DataFile, ...]:
    """Check each file of ``data.<which>``; a remote or missing one is only named.

    With the ``tokenizer`` of a model that is here, the first prompts are rendered and measured.
    """
    section = config.get("data") or {}
    given = section.get(which)
    entries = given if isinstance(given, list) else [] if given is None else [given]
    return tuple(_data_file(str(entry), f"data.{which}", section, folder, tokenizer) for entry in entries)


def _data_file(given: str, key: str, section: Mapping[str, Any], folder: Path, tokenizer: Any) -> DataFile:
    if _REMOTE.match(given):
        return DataFile(given=given, key=key, present=False, remote=True)
    path = folder / Path(given).expanduser()
    if not path.is_file():
        return DataFile(given=given, key=key, present=False)
    # What is too long depends on data.filter_overlong_prompts: a rule says so, not the check.
    found = check(
        path,
        tokenizer=tokenizer,
        limit=sys.maxsize,
        prompt_key=str(section.get("prompt_key", "prompt")),
        render=_RENDERED,
    )
    return DataFile(given=given, key=key, present=True, checked=found)


def model(given: Any, folder: Path) -> Model | None:
    """Look at a model folder's own words; a hub's name is not looked up."""
    if not isinstance(given, str) or not given:
        return None
    path = folder / Path(given).expanduser()
    if not path.is_dir():
        kind: Any = "remote" if _REMOTE.match(given) else "hub" if _HUB.fullmatch(given) else "missing"
        return Model(given=given, kind=kind)
    config = _json(path / "config.json")
    inner = config.get("text_config")  # of a model for text and images
    text = inner if isinstance(inner, dict) else config
    tokenizer = _json(path / "tokenizer_config.json")
    return Model(
        given=given,
        kind="folder",
        positions=_integer(text.get("max_position_embeddings")),
        heads=_integer(text.get("num_attention_heads")),
        has_template=(path / "chat_template.jinja").is_file() or bool(tokenizer.get("chat_template")),
    )


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _integer(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def reward(section: Mapping[str, Any] | None, folder: Path) -> Reward | None:
    """Read the custom reward function's file; nothing of it is run."""
    given, name = (section or {}).get("path"), str((section or {}).get("name") or "compute_score")
    if not given:
        return None
    if str(given).startswith("pkg://"):
        return Reward(path=str(given), name=name, present=True, others=(name,))
    more = (section or {}).get("reward_kwargs")
    return reward_source.read(
        folder / Path(str(given)).expanduser(),
        name,
        given=str(given),
        more=tuple(map(str, more)) if isinstance(more, Mapping) else (),
    )


def wandb_login(environ: Mapping[str, str]) -> bool:
    """Whether wandb would find an account, or was told to do without."""
    if environ.get("WANDB_API_KEY") or environ.get("WANDB_MODE") in {"offline", "disabled", "dryrun"}:
        return True
    netrc = Path(environ.get("HOME", "~")).expanduser() / ".netrc"
    try:
        return "wandb" in netrc.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False


def missing_paths(config: Mapping[str, Any], folder: Path) -> tuple[tuple[str, str], ...]:
    """Files for tools, interactions, datasets and samplers that are named and not there."""
    found = []
    for key in _PATHS:
        node: Any = config
        for part in key.split("."):
            node = node.get(part) if isinstance(node, Mapping) else None
        if isinstance(node, str) and node and not node.startswith("pkg://") and not _REMOTE.match(node):
            path = folder / Path(node).expanduser()
            if not path.exists():
                found.append((key, node))
    return tuple(found)


def checkpoints(config: Mapping[str, Any], folder: Path) -> tuple[str, ...]:
    """Checkpoints of an older run, where this one would look for them."""
    place = (config.get("trainer") or {}).get("default_local_dir")
    if not isinstance(place, str) or _REMOTE.match(place):
        return ()
    home = folder / Path(place).expanduser()
    return tuple(sorted(path.name for path in home.glob("global_step_*"))) if home.is_dir() else ()
