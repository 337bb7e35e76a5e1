"""Pydantic's findings as problems that a person can act on: place, reason, nearest valid key."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from harness.errors import Problem
from harness.profiles.tree import Path_, Tree, where

WORDS = {
    "missing": "the key is missing",
    "string_type": "must be text",
    "float_type": "must be a number",
    "int_type": "must be a whole number",
    "tuple_type": "must be a list",
    "dict_type": "must be a mapping of keys to values",
    "model_type": "must be a mapping of keys to values",
}


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that ``word`` was probably meant to be."""
    found = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return found[0] if found else None


def problems(error: ValidationError, tree: Tree, model: type[BaseModel]) -> list[Problem]:
    """All findings of one validation, in the order of the file."""
    found = [_problem(dict(item), tree, model) for item in error.errors(include_url=False)]
    unique = {(problem.where, problem.what): problem for problem in found}
    return list(unique.values())


def _problem(item: dict[str, Any], tree: Tree, model: type[BaseModel]) -> Problem:
    path = _real_path(item["loc"], tree.data)
    place = where(tree.place(path), path)
    if item["type"] == "extra_forbidden":
        known = _fields(model, path[:-1])
        close = nearest(str(path[-1]), known)
        return Problem(
            what=f"unknown key {path[-1]!r}",
            where=place,
            why=f"the keys here are {', '.join(known)}" if known else None,
            todo=f"did you mean {close!r}?" if close else "remove it, or use one of the keys named",
        )
    what = WORDS.get(item["type"], item["msg"][:1].lower() + item["msg"][1:])
    given = item.get("input")
    shown = given is not None and not isinstance(given, dict | list | tuple)
    return Problem(
        what=what, where=place, why=f"the value is {given!r:.80}" if shown else None, todo=_todo(item, given)
    )


def _todo(item: dict[str, Any], given: Any) -> str | None:
    if item["type"] == "missing":
        return f"add {item['loc'][-1]}, or extend a profile that has it"
    if item["type"] == "string_type" and isinstance(given, int | float):
        return f'put it in quotes: "{given}"'
    if item["type"] == "literal_error":
        expected = str(item.get("ctx", {}).get("expected", ""))
        close = nearest(str(given), [word.strip("' ") for word in expected.replace(" or ", ", ").split(",")])
        return f"did you mean {close!r}?" if close else None
    return None


def _real_path(location: tuple[str | int, ...], data: Any) -> Path_:
    """Drop what pydantic puts into a location that is not in the file (``[key]``, union branches)."""
    path: list[str | int] = []
    for number, part in enumerate(location):
        last = number == len(location) - 1
        if isinstance(data, dict) and (part in data or last) and part != "[key]":
            path.append(part)
            data = data.get(str(part))
        elif isinstance(data, list) and isinstance(part, int) and part < len(data):
            path.append(part)
            data = data[part]
    return tuple(path)


def _fields(model: type[BaseModel], path: Path_) -> list[str]:
    """The valid keys of the mapping at ``path``; empty where any key may stand."""
    annotation: Any = model
    for part in path:
        models = [kind for kind in _classes(annotation) if issubclass(kind, BaseModel)]
        if models and part in models[0].model_fields:
            annotation = models[0].model_fields[str(part)].annotation
        elif not models:
            annotation = (get_args(annotation) or (None,))[-1]  # the value of dict[str, X]
        # an index into a list of models: the annotation already leads to the item's model
    found = [kind for kind in _classes(annotation) if issubclass(kind, BaseModel)]
    return [key for key in found[0].model_fields if key != "name" or found[0] is not model] if found else []


def _classes(annotation: Any) -> list[type]:
    """The classes that an annotation mentions, however deep: ``tuple[X, ...] | None`` gives ``X``."""
    if isinstance(annotation, type) and not get_args(annotation):
        return [annotation]
    return [kind for part in get_args(annotation) for kind in _classes(part)]
