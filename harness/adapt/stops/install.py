"""Compiles the place into its module when a process loads it; neither source nor byte code is written."""

from __future__ import annotations

import os
import sys
from importlib.machinery import SourceFileLoader
from types import CodeType
from typing import Any

from harness.adapt.stops.place import VARIABLE, Place, compiled
from harness.evidence import events

_get_code: Any = SourceFileLoader.get_code


def install() -> None:
    """Watch for the module, if the variable names a place; a module that is loaded already is told."""
    place = Place.read(os.environ.get(VARIABLE, ""))
    if place is None:
        return

    def get_code(loader: SourceFileLoader, fullname: str) -> CodeType | None:
        path = loader.get_filename(fullname)
        if os.path.realpath(path) != place.file:
            return _get_code(loader, fullname)
        # Past the cache of byte code: what is compiled here must not be found by another run.
        return compiled(loader.get_data(path).decode(), path, place.line)

    SourceFileLoader.get_code = get_code  # type: ignore[assignment]
    late = [name for name, module in list(sys.modules.items()) if _is(module, place.file)]
    if late:
        events.emit("break_late", place=str(place), module=late[0])


def _is(module: Any, file: str) -> bool:
    path = getattr(module, "__file__", None)
    return isinstance(path, str) and os.path.realpath(path) == file
