"""How an override is written for Hydra's grammar."""

from __future__ import annotations

import json
import re

_PLAIN = re.compile(r"[A-Za-z0-9_./:-]+")
# Hydra's grammar makes something else of these words.
_VALUES = frozenset({"null", "true", "false", "nan", "inf", "-inf"})


def word(key: str, value: object) -> str:
    """One override. JSON is Hydra's own notation for lists, numbers and booleans.

    A string with anything but plain characters is quoted: Hydra's grammar has no bare umlaut, bracket or
    tilde, and people keep their projects in folders with such names.
    """
    if not isinstance(value, str):
        return f"{key}={json.dumps(value)}"
    if _PLAIN.fullmatch(value) and value.lower() not in _VALUES:
        return f"{key}={value}"
    return f"{key}='{value.replace(chr(39), chr(92) + chr(39))}'"
