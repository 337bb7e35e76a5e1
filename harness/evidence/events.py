"""``events.jsonl``: what happened, one short line an event, written by many processes at once.

Each line is one ``os.write`` on a descriptor opened with ``O_APPEND``, so lines of different
processes never mix. Standard library only: every Ray worker imports this at its start.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness.evidence.titles import own_title

FILE_VARIABLE = "VERLOCK_EVENTS"
ROLE_VARIABLE = "VERLOCK_ROLE"
RANK_VARIABLE = "RANK"
UNREADABLE = "unreadable"
# Local file systems append a write of any size in one piece; a limit keeps the file a list of events
# and not a dump.
LINE_LIMIT = 16 * 1024
_CLIP = 1000


def emit(kind: str, /, **fields: Any) -> bool:
    """Append one event to the run's file; ``False`` when there is none or it cannot be written.

    It never raises: an event must not end a trainer. Who relies on an event reads it back. The
    names ``time``, ``pid``, ``role``, ``rank`` and ``kind`` are the event's own.
    """
    path = os.environ.get(FILE_VARIABLE)
    if not path:
        return False
    event = {
        **fields,
        "time": _now(),
        "pid": os.getpid(),
        "role": os.environ.get(ROLE_VARIABLE) or own_title(),
        "kind": kind,
    }
    if RANK_VARIABLE in os.environ:  # verl sets it for the workers of a group, torchrun for all
        event["rank"] = os.environ[RANK_VARIABLE]
    try:
        return _append(path, _line(event))
    except OSError:
        return False


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _append(path: str, line: bytes) -> bool:
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        written = os.write(descriptor, line)
        if written < len(line):  # The disk filled up within the line: end it, so that only it is lost.
            os.write(descriptor, b"\n")
        return written == len(line)
    finally:
        os.close(descriptor)


def _line(event: dict[str, Any]) -> bytes:
    head = {key: event.pop(key) for key in ("time", "pid", "role", "rank", "kind") if key in event}
    line = json.dumps({**head, **{key: _plain(value) for key, value in event.items()}}).encode()
    if len(line) > LINE_LIMIT:
        clipped = {key: str(value)[:_CLIP] for key, value in list(event.items())[:10]}
        line = json.dumps({**head, **clipped, "clipped_bytes": len(line)}).encode()
    return line + b"\n"


def _plain(value: Any) -> Any:
    """Make a value fit JSON: no NaN (not JSON), no objects."""
    match value:
        case bool() | int() | str() | None:
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case dict():
            return {str(key): _plain(item) for key, item in value.items()}
        case list() | tuple() | set() | frozenset():
            return [_plain(item) for item in value]
        case _:
            return str(value)


def read(path: Path) -> list[dict[str, Any]]:
    """Return all events in the file's order; none when there is no file.

    A last line without its end is being written, or was cut by a kill: it is left out. Any other
    line that is not JSON becomes an event of the kind ``unreadable``, so that nothing is lost unseen.
    """
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return []
    whole, _, _cut = text.rpartition("\n")
    return list(_parse(whole.split("\n") if whole else []))


def _parse(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(lines, start=1):
        try:
            event = json.loads(line)
        except ValueError:
            event = None
        yield event if isinstance(event, dict) else {"kind": UNREADABLE, "line": number, "text": line[:200]}
