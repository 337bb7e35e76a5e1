"""What model is planned for: one of the shipped shapes, or a config.json of the user's."""

from __future__ import annotations

import difflib
import json
from functools import cache
from pathlib import Path
from typing import Any

import yaml

import harness
from harness.errors import OverrideError, Problem

_TODO = "give the config.json that was published with the model, or the name of a shipped shape"
_COUNTS = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")
SHIPPED = Path(harness.__file__).parent / "data" / "model_configs.yaml"


@cache
def shipped() -> dict[str, dict[str, Any]]:
    """All shipped shapes: source, parameters and config, by the model's name."""
    found: dict[str, dict[str, Any]] = yaml.safe_load(SHIPPED.read_text(encoding="utf-8"))
    return found


def values(model: str) -> dict[str, Any]:
    """The configuration of a shipped model (``Qwen2.5-0.5B``, also with its owner), a folder or a file.

    Raises:
        OverrideError: none of these, or a file that is no model's configuration.
    """
    names = {name.lower(): name for name in shipped()}
    file = _file(model)
    if file.is_file():
        return _read(file)
    wanted = model.rpartition("/")[2].lower().removesuffix("-instruct")
    if wanted in names:
        return dict(shipped()[names[wanted]]["config"])
    near = difflib.get_close_matches(wanted, names, n=1)
    raise OverrideError(
        f"no model {model}",
        where="--model",
        why="it is no folder with a config.json, no such file, and no shape that is shipped",
        todo=f"did you mean {names[near[0]]}?" if near else f"one of: {', '.join(shipped())}",
    )


def place(model: str) -> str:
    """Where a user corrects it: the file, or the option."""
    file = _file(model)
    return str(file) if file.is_file() else "--model"


def _file(model: str) -> Path:
    path = Path(model).expanduser()
    return path / "config.json" if path.is_dir() else path


def _read(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        why = str(getattr(error, "strerror", None) or error)
        raise OverrideError(
            "the configuration cannot be read", where=str(file), why=why, todo=_TODO
        ) from None
    if not isinstance(found, dict) or not isinstance(found.get("model_type"), str):
        raise OverrideError(
            "not a model's configuration",
            where=str(file),
            why="there is no key model_type with a name in it",
            todo=_TODO,
        )
    return found


def configuration(given: dict[str, Any], *, attention: str, where: str = "--model") -> Any:
    """The transformers configuration of these values, which are from ``where``.

    Raises:
        OverrideError: a model type that transformers does not know, or a value that it does not take.
    """
    from transformers import CONFIG_MAPPING, AutoConfig, __version__

    kind = given["model_type"]
    if kind not in CONFIG_MAPPING:
        near = difflib.get_close_matches(kind, list(CONFIG_MAPPING.keys()), n=1)
        raise OverrideError(
            f"no model is of type {kind}",
            where=f"{where}:model_type",
            why=f"transformers {__version__} has none of that name",
            todo=f"did you mean {near[0]}?" if near else _TODO,
        )
    rest = {key: value for key, value in given.items() if key not in {"model_type", "transformers_version"}}
    try:
        config = AutoConfig.for_model(kind, **rest)
    except Exception as error:  # noqa: BLE001 - each type checks its values in its own way
        raise OverrideError(
            f"transformers makes no configuration of type {kind} of these values",
            where=where,
            why=line(error.__cause__ or error),
            todo=_TODO,
        ) from None
    config._attn_implementation = attention  # noqa: SLF001 - as verl's override_config sets it
    return config


def check(config: Any, *, where: str) -> None:
    """Numbers that no model can have, told before anything is traced.

    Raises:
        OverrideError: with each of them.
    """
    counts = {key: getattr(config, key, None) for key in _COUNTS}
    problems = [
        Problem(what=f"{key} is {value}", where=f"{where}:{key}", why="a model has one or more", todo=_TODO)
        for key, value in counts.items()
        if isinstance(value, int) and value < 1
    ]
    heads, groups = counts["num_attention_heads"], counts["num_key_value_heads"]
    if not problems and isinstance(heads, int) and isinstance(groups, int) and heads % groups:
        problems.append(
            Problem(
                what=f"{heads} attention heads cannot share {groups} heads of keys and values",
                where=f"{where}:num_key_value_heads",
                why="each of those serves the same number of attention heads",
                todo=f"make num_attention_heads a multiple of {groups}, as published",
            )
        )
    if problems:
        raise OverrideError(*problems)


def line(error: BaseException) -> str:
    """The first line of what an error says, as much as is read at a glance."""
    lines = [text.strip() for text in str(error).splitlines() if text.strip()]
    return lines[0][:200] if lines else "it says nothing"
