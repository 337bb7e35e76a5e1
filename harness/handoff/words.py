"""Hydra overrides as words of a command line: read back from a record, and written for a shell."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping

from pydantic import JsonValue

from harness.profiles.hydra import word


def bare(key: str) -> str:
    """A key without the ``+`` or ``++`` that says that verl's own tree lacks it."""
    return key.lstrip("+~")


def read(words: Iterable[str]) -> dict[str, JsonValue]:
    """Key (as it was spelt) to value; what is no override, such as the program's name, is passed over."""
    found: dict[str, JsonValue] = {}
    for text in words:
        key, equals, value = text.partition("=")
        if equals and not key.startswith(("-", "/")):
            found[key] = _value(value)
    return found


def _value(text: str) -> JsonValue:
    """The notation that :func:`harness.profiles.hydra.word` writes."""
    if len(text) >= 2 and text[0] == text[-1] == "'":
        return text[1:-1].replace("\\'", "'")
    try:
        value: JsonValue = json.loads(text)
    except ValueError:
        return text
    return value


def shell(overrides: Mapping[str, object]) -> list[str]:
    """Each override as one word that a POSIX shell hands on unchanged."""
    return [shlex.quote(word(key, value)) for key, value in overrides.items()]
