"""YAML as plain data that remembers the line of each key, so that an error can point at it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from harness.errors import Problem, ProfileError

Path_ = tuple[str | int, ...]
REASON = "reason"
"""What carries a reason is replaced whole: an old reason would not fit a new value."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """A line of a file, as it is shown to people."""

    file: str
    line: int

    def __str__(self) -> str:
        """``file:line``, which editors turn into a link."""
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, kw_only=True)
class Tree:
    """A document: its data, where each key stands, and what is wrong with it as YAML."""

    data: dict[str, Any]
    places: dict[Path_, Place] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()

    def place(self, path: Path_) -> Place | None:
        """The place of ``path``, or of the nearest parent that is written down."""
        while path not in self.places and path:
            path = path[:-1]
        return self.places.get(path)


class _Loader(yaml.SafeLoader):
    """Safe loading without timestamps: a date in a profile is text for uv, not a Python object."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, regexp) for tag, regexp in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


class _Walk:
    """One pass over the nodes of one file."""

    def __init__(self, file: str, loader: _Loader) -> None:
        self.file = file
        self.loader = loader
        self.places: dict[Path_, Place] = {}
        self.problems: list[Problem] = []
        self.open: set[int] = set()

    def value(self, node: yaml.Node, path: Path_) -> Any:
        if id(node) in self.open:
            self.problem(node, path, "an alias that contains itself")
            return None
        self.open.add(id(node))
        try:
            if isinstance(node, yaml.MappingNode):
                return self.mapping(node, path)
            if isinstance(node, yaml.SequenceNode):
                return [self.item(child, (*path, number)) for number, child in enumerate(node.value)]
            return self.scalar(node, path)
        finally:
            self.open.discard(id(node))

    def item(self, node: yaml.Node, path: Path_) -> Any:
        self.places[path] = self.at(node)
        return self.value(node, path)

    def mapping(self, node: yaml.MappingNode, path: Path_) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key_node, child in node.value:
            key = self.value(key_node, path) if isinstance(key_node, yaml.ScalarNode) else None
            if not isinstance(key, str):
                self.problem(
                    key_node, path, "a key that is not a word", todo="write the key as plain or quoted text"
                )
            elif key in result:
                self.problem(
                    key_node,
                    (*path, key),
                    "the key is written twice",
                    why=f"first at line {self.places[(*path, key)].line}",
                )
            else:
                self.places[(*path, key)] = self.at(key_node)
                result[key] = self.value(child, (*path, key))
        return result

    def scalar(self, node: yaml.Node, path: Path_) -> Any:
        try:
            value = self.loader.construct_object(node)
        except (yaml.YAMLError, ValueError) as error:
            # ValueError: YAML 1.1 takes `0b_` for a number, which int() then refuses.
            self.problem(
                node, path, f"a value that cannot be read: {node.value!r:.60}", why=str(error).splitlines()[0]
            )
            return None
        if isinstance(value, float) and value - value != 0.0:
            self.problem(node, path, f"not a finite number: {node.value}")
            return None
        return value

    def at(self, node: yaml.Node) -> Place:
        return Place(file=self.file, line=node.start_mark.line + 1)

    def problem(
        self, node: yaml.Node, path: Path_, what: str, *, why: str | None = None, todo: str | None = None
    ) -> None:
        self.problems.append(Problem(what=what, where=where(self.at(node), path), why=why, todo=todo))


def where(place: Place | None, path: Path_) -> str | None:
    """``file:line:key`` as far as each part is known."""
    parts = [str(place) if place else "", ".".join(map(str, path))]
    return ":".join(part for part in parts if part) or None


def read(text: str | bytes, *, file: str) -> Tree:
    """Parse one file; ``file`` is how it is named in messages.

    :raises ProfileError: when it is not YAML, or not a mapping, so that nothing else can be said about it.
    """
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        walk = _Walk(file, loader)
        data = walk.value(node, ()) if node is not None else {}
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ProfileError(
            f"not YAML: {error.problem or error.context}", where=f"{file}:{line}", todo="correct the line"
        ) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ProfileError(f"not a text file: {str(error).splitlines()[0]}", where=file) from None
    except RecursionError:
        raise ProfileError("nested too deeply to be a profile", where=file) from None
    if not isinstance(data, dict):
        raise ProfileError("not a mapping of keys to values", where=f"{file}:1")
    return Tree(data=data, places=walk.places, problems=tuple(walk.problems))


def read_file(path: Path, *, file: str) -> Tree:
    """Parse the file at ``path``."""
    try:
        return read(path.read_bytes(), file=file)
    except OSError as error:
        raise ProfileError(f"cannot be read: {error.strerror}", where=file) from None


def overlay(base: Tree, top: Tree) -> Tree:
    """``top`` over ``base``: mappings are merged key by key, everything else is replaced whole."""
    places = dict(base.places)
    data = _merge(base.data, top.data, (), places, top.places)
    return Tree(data=data, places=places, problems=base.problems + top.problems)


def _merge(
    base: dict[str, Any],
    top: dict[str, Any],
    path: Path_,
    places: dict[Path_, Place],
    new: dict[Path_, Place],
) -> dict[str, Any]:
    result = dict(base)
    for key, value in top.items():
        here = (*path, key)
        if isinstance(value, dict) and isinstance(result.get(key), dict) and REASON not in result[key]:
            places[here] = new.get(here, places[here])
            result[key] = _merge(result[key], value, here, places, new)
            continue
        for stale in [known for known in places if known[: len(here)] == here]:
            del places[stale]
        places.update({known: place for known, place in new.items() if known[: len(here)] == here})
        result[key] = value
    return result
