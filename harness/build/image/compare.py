"""Two archives of what should be the same image: each path that differs, and why such a thing differs.

The class says where to look for the cause: byte code (a compiler that notes times), a log, a cache, a time
stamp in a file, ownership or mode, or none of these.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from harness.build.image.entries import Entry
from harness.build.image.saved import Saved, open_saved

Class = Literal["byte code", "log", "cache", "time stamp", "ownership", "unknown"]

_LOG = re.compile(r"(^|/)var/log/|\.log(\.\d+)?$")
_CACHE = re.compile(
    r"(^|/)(var/cache|\.cache|var/lib/apt/lists|var/lib/dpkg/[a-z]+-old|__pycache__)/|aux-cache$|-old$"
)
_BYTE_CODE = re.compile(r"\.py[co]$")
# Dates, times of day, and seconds since 1970 from 2001 on: what a clock writes into a text.
_CLOCK = re.compile(
    rb"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d)?(\.\d+)?(Z|[+-]\d\d:?\d\d)?)?"
    rb"|\d\d:\d\d:\d\d(\.\d+)?|\b1\d{9,18}(\.\d+)?\b|\b(Mon|Tue|Wed|Thu|Fri|Sat|Sun)\b"
    rb"|\b(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) +\d{1,2}\b"
)
_LARGEST_TEXT = 4 << 20


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One path, or one key of the configuration, that is not the same."""

    path: str
    kind: Class
    detail: str
    layer: int | None = None
    """Counted from 0; none for the configuration."""

    def line(self) -> str:
        """For people."""
        return f"{self.path}: {self.kind} ({self.detail})"

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def compare(one: Path, two: Path) -> list[Difference]:
    """All that differs between two archives; none if they hold the same image.

    A path that several layers touch is named once, in the lowest layer where it differs.

    Raises:
        ImageError: an archive cannot be read.
    """
    with open_saved(one) as first, open_saved(two) as second:
        found = _config(first, second)
        seen: set[str] = set()
        trees = [list(saved.trees()) or [{}] for saved in (first, second)]
        # Where one has fewer layers, its last tree is what it ends with.
        for layer in range(max(map(len, trees))):
            old, new = (has[min(layer, len(has) - 1)] for has in trees)
            for path in sorted(old.keys() | new.keys()):
                if path not in seen and (difference := _differ(path, old, new, layer)):
                    found.append(difference)
                    seen.add(path)
    return found


def classify(path: str, old: Entry | None, new: Entry | None) -> tuple[Class, str]:
    """Why a path differs. Reads contents only where two files are told apart by them."""
    if old is None or new is None:
        return _by_name(path), f"only in the {'second' if old is None else 'first'}"
    if old != new and (old.kind, old.target) == (new.kind, new.target):
        return "ownership", f"{_owned(old)}, then {_owned(new)}"
    if old != new:
        return _by_name(path), "another kind of file, or another target of a link"
    named = _by_name(path)
    if named == "unknown" and _same_but_for_the_clock(old, new):
        named = "time stamp"
    return named, "another content"


def _differ(path: str, old: Mapping[str, Entry], new: Mapping[str, Entry], layer: int) -> Difference | None:
    before, after = old.get(path), new.get(path)
    if before is after or (before is not None and after is not None and before.same(after)):
        return None
    kind, detail = classify(path, before, after)
    return Difference(path=path, kind=kind, detail=detail, layer=layer)


def _by_name(path: str) -> Class:
    for kind, pattern in _NAMES.items():
        if pattern.search(path):
            return kind
    return "unknown"


_NAMES: dict[Class, re.Pattern[str]] = {"byte code": _BYTE_CODE, "log": _LOG, "cache": _CACHE}


def _same_but_for_the_clock(old: Entry, new: Entry) -> bool:
    texts = [_text(entry) for entry in (old, new)]
    if None in texts:
        return False
    first, second = (_CLOCK.sub(b"<time>", text or b"") for text in texts)
    return first == second


def _text(entry: Entry) -> bytes | None:
    if entry.content is None or entry.content.size > _LARGEST_TEXT:
        return None
    return b"".join(entry.content.chunks())


def _owned(entry: Entry) -> str:
    more = " with attributes" if entry.attributes else ""
    return f"{entry.uid}:{entry.gid} {entry.mode:04o}{more}"


def _config(first: Saved, second: Saved) -> list[Difference]:
    found = []
    for key in ("architecture", "os", "variant", "created"):
        found += _values(key, first.config.get(key), second.config.get(key))
    one, two = first.config.get("config") or {}, second.config.get("config") or {}
    for key in sorted(one.keys() | two.keys()):
        found += _values(f"config.{key}", one.get(key), two.get(key))
    return found


def _values(key: str, old: object, new: object) -> list[Difference]:
    if old == new:
        return []
    texts = [json.dumps(value, sort_keys=True) for value in (old, new)]
    clock = _CLOCK.sub(b"", texts[0].encode()) == _CLOCK.sub(b"", texts[1].encode())
    kind: Class = "time stamp" if clock else "unknown"
    return [Difference(path=key, kind=kind, detail=f"{texts[0]}, then {texts[1]}"[:300])]
