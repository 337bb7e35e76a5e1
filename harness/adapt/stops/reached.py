"""What happens at the place: the stack and all locals are written, or a debugger waits there."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import FrameType

from harness.adapt.stops import dump, remote
from harness.adapt.stops.place import VARIABLE, Place
from harness.evidence import events
from harness.evidence.titles import own_title

FOLDER = "breaks"
_seen: set[int] = set()


def reached() -> None:
    """Called from the module's own code; acts once in each process."""
    place = Place.read(os.environ.get(VARIABLE, ""))
    pid = os.getpid()
    if place is None or pid in _seen or not _chosen(place):
        return
    _seen.add(pid)
    frame = sys._getframe(1)  # noqa: SLF001 - the only way to the caller's locals
    if place.tool == "dump":
        _write(place, frame)
    else:
        remote.wait(place, frame)


def _chosen(place: Place) -> bool:
    role = os.environ.get(events.ROLE_VARIABLE) or own_title()
    if place.role.lower() not in role.lower():
        return False
    return not place.rank or os.environ.get("RANK", "0") == place.rank


def _write(place: Place, frame: FrameType) -> None:
    told = dump.text(frame, place.line)
    folder = Path(os.environ.get(events.FILE_VARIABLE, "events.jsonl")).parent / FOLDER
    name = f"{own_title().removeprefix('ray::').replace('/', '_')}-{os.getpid()}.txt"
    try:
        folder.mkdir(exist_ok=True)
        (folder / name).write_text(told, encoding="utf-8")
    except OSError as error:
        name = f"not written: {error.strerror}"
    events.emit(
        "break", at=f"{place.file}:{place.line}", function=frame.f_code.co_qualname, file=f"{FOLDER}/{name}"
    )
