"""Values of a type that verl's own tree says is another: they compose, and fail where they are used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from harness.adapt import verls
from harness.data.finding import Finding

# Where verl takes one value or a list of them.
_EITHER = frozenset({"data.train_files", "data.val_files", "trainer.logger", "trainer.resume_from_path"})
_TAKES: dict[type, Any] = {bool: bool, int: int, float: int | float, list: list, dict: Mapping}
_NAMES = {bool: "true or false", int: "a whole number", float: "a number", str: "a text", list: "a list"}


def wrong(
    config: Mapping[str, Any], base: Mapping[str, Any], annotations: Mapping[str, Any]
) -> list[Finding]:
    """Compare each value with the type in verl's dataclass, or where there is none with its default's.

    ``annotations`` has the dataclasses' types by key; both configurations are plain and resolved.
    """
    return list(_walk(config, base, annotations, ""))


def _walk(node: Any, base: Any, annotations: Mapping[str, Any], prefix: str) -> Iterator[Finding]:
    for name, value in node.items():
        if not isinstance(base, Mapping) or name not in base:
            continue
        key, default = f"{prefix}{name}", base[name]
        if isinstance(value, Mapping) and isinstance(default, Mapping):
            yield from _walk(value, default, annotations, f"{key}.")
        elif key not in _EITHER and value is not None and value != default:
            expected = annotations.get(key) or (None if default is None else type(default))
            yield from _one(key, value, expected, default)


def _one(key: str, value: Any, expected: Any, default: Any) -> Iterator[Finding]:
    if default == "???":
        return
    if not isinstance(expected, type) or _fits(value, expected):
        return
    what = _NAMES.get(expected, "a section of keys")
    yield Finding(
        id="wrong-type",
        key=key,
        what=f"{key} is {value!r}, verl expects {what}",
        why=f"its default is {default!r}" if default is not None else "verl's own dataclass says so",
        todo=_remedy(key, value, expected),
    )


def _fits(value: Any, expected: type) -> bool:
    if isinstance(value, bool):
        return expected in {bool, str}
    if expected is str:
        return not isinstance(value, Mapping | list)
    # dict: a section that became a value
    return isinstance(value, _TAKES.get(expected, object))


def _remedy(key: str, value: Any, expected: Any) -> str:
    if expected is int and isinstance(value, float) and value.is_integer():
        return f"write {key}={int(value)}"
    if expected is list and isinstance(value, str):
        return f"write '{key}=[{value}]'"
    return "correct the value"


def missing(config: Mapping[str, Any], base: Mapping[str, Any], prefix: str = "") -> list[Finding]:
    """Keys of verl's tree that a file of the user's own does not have; the topmost of each branch."""
    found: list[Finding] = []
    for name, default in base.items():
        key = f"{prefix}{name}"
        if name not in config:
            found.append(
                Finding(
                    id="missing-key",
                    key=key,
                    what=f"the configuration has no {key}",
                    why=f"verl {verls.here()} reads it: Key is not in struct; the file is of another version",
                    todo="build on verl's own: defaults: [ppo_trainer, _self_], and set only what differs",
                )
            )
        elif isinstance(default, Mapping) and isinstance(config[name], Mapping):
            found += missing(config[name], default, f"{key}.")
    return found
