"""verl's own word: its dataclasses, its validation and its registries, asked without Ray."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import re
import types
import typing
import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from harness.data.finding import Finding
from harness.ladder.preflight.facts import Names

# verl's sentences, and the ids of our rules that say the same with more about it.
_SAID = (
    (r"must be >= (actor|critic)\.ppo_mini_batch_size", "mini-batch"),
    (r"real_train_batch_size .* must be divisible", "batch-divisible"),
    (r"Please set at least one of", "micro-batch-unset"),
    (r"You have set both", "micro-batch-twice"),
    (r"Rollout mode 'sync' has been removed", "rollout-mode"),
    (r"Reward manager is not registered", "unknown-name"),
    (r"validation gen temperature", "temperature-zero"),
    (r"must enable `?use_remove_padding", "sequence-parallel-padding"),
    (r"Missing mandatory value: actor_rollout_ref\.rollout\.name", "rollout-unset"),
)
_SECTIONS = (
    "actor_rollout_ref.actor",
    "actor_rollout_ref.rollout",
    "critic",
    "algorithm",
    "distillation",
)


def names(sources: Iterable[str]) -> Names:
    """The registries, and whether verl's default reward knows each of ``sources``."""
    import verl.experimental.reward_loop  # noqa: F401 - fills the registry
    from verl.experimental.reward_loop.reward_manager.registry import REWARD_MANAGER
    from verl.trainer.ppo import core_algos
    from verl.utils.tracking import Tracking
    from verl.workers.rollout.base import _ROLLOUT_REGISTRY

    return Names(
        estimators=frozenset(str(getattr(n, "value", n)) for n in core_algos.ADV_ESTIMATOR_REGISTRY),
        losses=frozenset(map(str, core_algos.POLICY_LOSS_REGISTRY)),
        managers=frozenset(REWARD_MANAGER),
        # What the harness registers itself is no name of the user's.
        rollouts=frozenset(name for name, _mode in _ROLLOUT_REGISTRY if name not in {"hf", "mock"}),
        loggers=frozenset(Tracking.supported_backend) | {"tracking"},
        sources={source: _has_rule(source) for source in sources},
    )


def _has_rule(source: str) -> bool:
    from verl.utils.reward_score import default_compute_score

    try:
        default_compute_score(source, "", "")
    except NotImplementedError:
        return False
    except Exception:  # noqa: BLE001 - there is a rule, and it dislikes an empty answer
        return True
    return True


def validate(config: Any, base: Any, known: Iterable[str]) -> list[Finding]:
    """Make verl's dataclasses of their sections, then let it validate the whole.

    ``known`` are ids that our rules found already: verl's shorter sentence on the same is left out. What
    verl refuses of its own defaults (``base``) as well is no fault of the user's.
    """
    errors = _errors(config)
    own = {text for _key, text in _errors(base)} if errors else set()
    seen, found = set(known), dict[str, Finding]()
    for key, text in errors:
        ours = next((id_ for pattern, id_ in _SAID if re.search(pattern, text)), None)
        if ours in seen or (text in own and ours is None) or _lacks_engine(text):
            continue
        if "wrong-type" in seen and text.startswith("TypeError: "):  # what comes of a value that was told
            continue
        found.setdefault(text, _finding(key, text))
    return list(found.values())


def _lacks_engine(text: str) -> bool:
    """Whether verl only missed the inference engine, which the profile's environment does not have."""
    return bool(
        re.search(r"No module named '(vllm|sglang|tensorrt_llm)|vllm version None not supported", text)
    )


def _errors(config: Any) -> list[tuple[str, str]]:
    """Section and sentence of everything that verl raises."""
    from omegaconf import OmegaConf
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import omega_conf_to_dataclass, validate_config

    errors: list[tuple[str, str]] = []
    # The critic's class would load its model, from a hub if need be. (verl makes no class of the reference.)
    config = OmegaConf.merge(config)
    OmegaConf.update(config, "critic.model", None, force_add=True)
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings(action="ignore"):
        for key in _SECTIONS:
            section = OmegaConf.select(config, key)
            if OmegaConf.is_dict(section) and "_target_" in section and (key != "critic" or _critic(config)):
                errors += _tried(key, lambda section=section: omega_conf_to_dataclass(section))
        errors += _tried(
            "",
            lambda: validate_config(
                config=config,
                use_reference_policy=need_reference_policy(config),
                use_critic=need_critic(config),
            ),
        )
    return errors


def _critic(config: Any) -> bool:
    from verl.trainer.ppo.utils import need_critic

    try:
        return bool(need_critic(config))
    except Exception:  # noqa: BLE001 - a configuration without the key; validate_config says so
        return False


def _tried(key: str, call: Any) -> Iterator[tuple[str, str]]:
    try:
        call()
    except Exception as error:  # noqa: BLE001 - whatever verl raises is what the user would see
        # Hydra names the inner section in its wrapper, and the innermost message is verl's.
        inner = re.search(r"full_key: (\S+)", str(error))
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        lines = [line.strip() for line in str(cause).splitlines() if line.strip()]
        place = inner[1] if inner else key
        yield place, f"{type(cause).__name__}: {' '.join(lines[:2])}"[:400]


def _finding(key: str, text: str) -> Finding:
    field = re.search(r"unexpected keyword argument '(\w+)'", text)
    if field:
        return Finding(
            id="unknown-field",
            key=f"{key}.{field[1]}" if key else field[1],
            what=f"verl's configuration class has no field {field[1]}",
            why=text,
            todo="remove the key, or look for its new place in verl/trainer/config",
        )
    return Finding(
        id="verl-validation",
        key=key or "config",
        what="verl refuses this configuration",
        why=text,
        todo="read verl/utils/config.py and verl/workers/config",
    )


def field_types(config: Any) -> dict[str, Any]:
    """The types of fields whose default is null, from the dataclasses that verl names in the tree."""
    found: dict[str, Any] = {}
    for key, section in _targets(config, ""):
        cls = _class(str(section.get("_target_")))
        if cls is None:
            continue
        hints = _hints(cls)
        for field in dataclasses.fields(cls):
            kind = _plain(hints.get(field.name))
            if kind is not None:
                found[f"{key}.{field.name}"] = kind
    return found


def _targets(node: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for name, child in node.items():
        if isinstance(child, Mapping):
            key = f"{prefix}{name}"
            if "_target_" in child:
                yield key, child
            yield from _targets(child, f"{key}.")


def _class(target: str) -> Any:
    from hydra.utils import get_class

    try:
        cls = get_class(target)
    except Exception:  # noqa: BLE001 - a target of another engine that is not installed
        return None
    return cls if dataclasses.is_dataclass(cls) else None


def _hints(cls: Any) -> dict[str, Any]:
    try:
        return typing.get_type_hints(cls)
    except Exception:  # noqa: BLE001 - a forward reference that only an installed engine resolves
        return {}


def _plain(hint: Any) -> type | None:
    """``int`` of ``Optional[int]``; none for anything that is not one plain type."""
    if typing.get_origin(hint) in {typing.Union, types.UnionType}:
        inner = [part for part in typing.get_args(hint) if part is not type(None)]
        hint = inner[0] if len(inner) == 1 else None
    return hint if hint in {bool, int, float, str} else None
