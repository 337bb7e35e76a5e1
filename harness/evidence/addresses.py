"""Addresses of machines in text, and what only looks like one: a version has four numbers too.

Loopback, "any" and netmasks name no machine and stay.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from ipaddress import IPv4Address, IPv6Address, IPv6Network

STAND_IN = "<address>"
_V4 = re.compile(
    r"(?:(?<![A-Za-z0-9.])|(?<=\\[nrt]))(?P<quad>\d{1,3}(?:\.\d{1,3}){3})(?P<port>:\d{2,5}\b)?(?![A-Za-z0-9+]|\.\d|-\d)"
)
_V6 = re.compile(
    r"(?:(?<![\w:.])|(?<=\\[nrt]))(?:[0-9A-Fa-f]{1,4}|:)(?::[0-9A-Fa-f]{0,4}){2,7}(?::\d{1,3}(?:\.\d{1,3}){3})?(?:%\w+)?(?![\w:])"
)
_MAC = re.compile(r"(?<![\w:-])(?:[0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}(?![\w:-])")
# What stands before a version: torch==2.13.0.1, "nvidia-cublas": "12.8.4.1", opencv_python-4.12.0.88
_BEFORE = re.compile(
    r"(?P<name>[A-Za-z][\w.]*(?:-[A-Za-z][\w.]*)*)?(?:\[[\w,]*\])?[\"']?\s*"
    r"(?P<how>[=~!<>]=|[-_:=(@<>]|)\s*[\"']?(?P<v>v?)$"
)
_VERSIONED = re.compile(
    r"(?:version|release|driver|nvidia|cuda|cudnn|cublas|nccl|opencv|linux)", re.IGNORECASE
)
_LOOK_BACK = 80
_UNIQUE_LOCAL, _GLOBAL, _MANY_GROUPS = IPv6Network("fc00::/7"), IPv6Network("2000::/3"), 4


def clean(text: str, packages: Collection[str] = ()) -> tuple[str, int]:
    """The text without them, and how many were replaced.

    Args:
        text: any.
        packages: distributions, in lower case with dashes: four numbers behind one of these are its version.
    """
    taken = 0

    def four(match: re.Match[str]) -> str:
        nonlocal taken
        if not _names_a_machine(match["quad"]) or (
            match["port"] is None
            and _is_version(text[max(0, match.start() - _LOOK_BACK) : match.start()], packages)
        ):
            return match[0]
        taken += 1
        return f"{STAND_IN}{match['port'] or ''}"

    def six(match: re.Match[str]) -> str:
        nonlocal taken
        if not _six(match[0]):
            return match[0]
        taken += 1
        return STAND_IN

    text = _V6.sub(six, text)
    text = _V4.sub(four, text)
    text, macs = _MAC.subn(STAND_IN, text)
    return text, taken + macs


def _names_a_machine(word: str) -> bool:
    try:
        found = IPv4Address(word)
    except ValueError:
        return False
    return not (found.is_loopback or word.startswith(("0.", "255.")))


def _is_version(before: str, packages: Collection[str]) -> bool:
    found = _BEFORE.search(before.rpartition("\n")[2])
    if found is None:
        return False
    name = (found["name"] or "").rstrip("-_.").lower().replace("_", "-")
    return bool(
        found["v"]
        or found["how"] in {"==", "~=", "!=", ">=", "<="}
        or _VERSIONED.search(name)
        or name in packages
    )


def _six(word: str) -> bool:
    """A slice ``[::2]`` and a scope ``ab::cd`` have the form of an address too: those in use are longer."""
    try:
        found = IPv6Address(word.partition("%")[0])
    except ValueError:
        return False
    if found.is_loopback or found.is_unspecified:
        return False
    first = word.partition(":")[0]
    groups = [group for group in re.split(r":+", word) if group]
    known = found.is_link_local or found in _UNIQUE_LOCAL or found in _GLOBAL
    return len(groups) >= _MANY_GROUPS or (len(first) == len("fe80") and known) or "." in word
