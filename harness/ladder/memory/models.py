"""What model is planned for: one of the shipped shapes, or a config.json of the user's."""

from __future__ import annotations

import difflib
import json
from functools import cache
from pathlib import Path
from typing import Any

import yaml

import harness
from harness.errors import MemoryPlanError

SHIPPED = Path(harness.__file__).parent / "data" / "model_configs.yaml"


@cache
def shipped() -> dict[str, dict[str, Any]]:
    """All shipped shapes: source, parameters and config, by the model's name."""
    found: dict[str, dict[str, Any]] = yaml.safe_load(SHIPPED.read_text(encoding="utf-8"))
    return found


def values(model: str) -> dict[str, Any]:
    """The configuration of a shipped model (``Qwen2.5-0.5B``, also with its owner), a folder or a file.

    Raises:
        MemoryPlanError: none of these, or a file that is no model's configuration.
    """
    names = {name.lower(): name for name in shipped()}
    path = Path(model).expanduser()
    file = path / "config.json" if path.is_dir() else path
    if file.is_file():
        return _read(file)
    wanted = model.rpartition("/")[2].lower().removesuffix("-instruct")
    if wanted in names:
        return dict(shipped()[names[wanted]]["config"])
    near = difflib.get_close_matches(wanted, names, n=1)
    raise MemoryPlanError(
        f"no model {model}",
        where="--model",
        why="it is no folder with a config.json, no such file, and no shape that is shipped",
        todo=f"did you mean {names[near[0]]}?" if near else f"one of: {', '.join(shipped())}",
    )


def _read(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise MemoryPlanError("the configuration cannot be read", where=str(file), why=str(error)) from None
    if not isinstance(found, dict) or "model_type" not in found:
        raise MemoryPlanError(
            "not a model's configuration", where=str(file), why="there is no key model_type in it"
        )
    return found


def configuration(given: dict[str, Any], *, attention: str) -> Any:
    """The transformers configuration of these values.

    Raises:
        MemoryPlanError: a model type that transformers does not know.
    """
    from transformers import AutoConfig

    rest = {key: value for key, value in given.items() if key not in {"model_type", "transformers_version"}}
    try:
        config = AutoConfig.for_model(given["model_type"], **rest)
    except (ValueError, TypeError) as error:
        raise MemoryPlanError(
            f"transformers makes no configuration of type {given['model_type']}",
            why=str(error).splitlines()[0],
        ) from None
    config._attn_implementation = attention  # noqa: SLF001 - as verl's override_config sets it
    return config
