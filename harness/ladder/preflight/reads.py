"""Which forced-in keys does verl read? By its source: attribute names, names in quotes, and pairs of them.

A key that was added with ``+`` composes whatever it is called, and when no code asks for it, it does nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from harness.adapt import verls
from harness.data.finding import Finding

_PAIR = re.compile(r"\b(\w+)\.(\w+)\b|\b(\w+)\.get\(\s*[\"'](\w+)[\"']|\b(\w+)\[[\"'](\w+)[\"']\]")
_QUOTED = re.compile(r"[\"']([A-Za-z_]\w*)[\"']")
# Sections that verl hands on as they are: to transformers, an inference engine, ray.init, a function of the
# user's, PyTorch's optimiser, an FSDP mixed-precision dict. What is in them is not verl's to read.
_HANDED_ON = re.compile(
    r"(^|\.)(override_config|engine_kwargs|apply_chat_template_kwargs|mm_processor_kwargs|reward_kwargs|ray_init|"
    r"override_optimizer_config|override_model_config|optimizer_args|override_ddp_config|"
    r"override_transformer_config|teacher_models|override_mcore_model_config|mixed_precision|turbo_config|"
    r"global_tool_config|custom|sampling_params)(\.|$)|^hydra\."
)


@dataclass(frozen=True, kw_only=True)
class Index:
    """Names that occur in verl's source, and pairs ``section.key`` that are read together."""

    names: frozenset[str]
    pairs: frozenset[tuple[str, str]]


@cache
def index(verl: Path) -> Index:
    """Read all of verl's source; about half a second."""
    names: set[str] = set()
    pairs: set[tuple[str, str]] = set()
    for path in verl.rglob("*.py"):
        text = path.read_text(encoding="utf-8", errors="replace")
        for match in _PAIR.finditer(text):
            first, second = [part for part in match.groups() if part is not None]
            pairs.add((first, second))
            names.add(second)
        names.update(_QUOTED.findall(text))
    return Index(names=frozenset(names), pairs=frozenset(pairs))


def unread(
    forced: Iterable[str], base: Mapping[str, Any], known: Index, near: Mapping[str, str]
) -> list[Finding]:
    """The forced-in keys that no code asks for. ``near`` gives the real key that may be meant.

    Sections that verl makes into a dataclass are left to verl: it refuses a field that it does not know.
    """
    found = []
    for key in forced:
        parts = key.split(".")
        depth = _depth(parts, base)
        if _HANDED_ON.search(key) or _is_dataclass(parts[:depth], base):
            continue
        missing = _missing(parts, depth, base, known)
        if missing:
            todo = f"did you mean {near[key]}?" if key in near else "remove it"
            found.append(
                Finding(
                    id="unread-key",
                    key=key,
                    what=f"nothing in verl reads {missing}: the key is set and does nothing",
                    why=f"with + or ++ Hydra takes any key; no line of verl {verls.here()} asks for this one",
                    todo=todo,
                )
            )
    return found


def _depth(parts: list[str], base: Any) -> int:
    """How many parts of the key verl's own tree has."""
    node, depth = base, 0
    for part in parts:
        if not isinstance(node, Mapping) or part not in node:
            return depth
        node, depth = node[part], depth + 1
    return depth


def _is_dataclass(parts: list[str], base: Any) -> bool:
    node = base
    for part in parts:
        node = node[part]
        if not isinstance(node, Mapping):
            return False
    return isinstance(node, Mapping) and "_target_" in node


def _missing(parts: list[str], depth: int, base: Mapping[str, Any], known: Index) -> str | None:
    """The first part of the key that is not read where it stands."""
    section = parts[depth - 1] if depth else "config"
    first = parts[depth]
    elsewhere = first in set(_all_names(base))
    read = (section, first) in known.pairs if elsewhere else first in known.names
    if not read:
        return f"{section}.{first}" if depth else first
    return next((part for part in parts[depth + 1 :] if part not in known.names), None)


def _all_names(node: Any) -> Iterable[str]:
    if isinstance(node, Mapping):
        for key, child in node.items():
            yield str(key)
            yield from _all_names(child)
