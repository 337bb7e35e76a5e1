"""The roles that a process can have: Ray names it by its actor's class; the climb's own is ``harness``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path

from harness.errors import OverrideError

# What no class gives its name to (harness/evidence/titles.py): the climb itself, and verl's driver.
_PROCESSES = ("harness", "verl.trainer.main_ppo")
_CLASS = re.compile(r"^\s*class (\w+)|@ray\.remote[^\n]*\n\s*def (\w+)", re.MULTILINE)
# verl makes these classes as it runs (single_controller/ray/base.py): no source has their whole name.
_MADE = ("WorkerDict", "FusedWorker")


def known(role: str, places: Iterable[Path]) -> None:
    """Refuse a role that no process can have: it would be waited for until the end.

    A part of a name will do, in any case, as where the place is reached.

    Raises:
        OverrideError: no actor or task in these folders and files has it in its name.
    """
    if not role:
        return
    names = {*_PROCESSES, *_MADE, *(name for folder in places for name in _names(folder))}
    if any(role.lower() in f"ray::{name}".lower() for name in names):
        return
    near = get_close_matches(role, names, n=4, cutoff=0.5)
    raise OverrideError(
        f"no process has the role {role}",
        where="--break",
        why="a role is harness, or the class of a Ray actor, such as WorkerDict or TaskRunner",
        todo=f"the nearest: {', '.join(near)}" if near else "leave @ROLE out: each process that comes there",
    )


def _names(folder: Path) -> Iterable[str]:
    for path in folder.rglob("*.py") if folder.is_dir() else [folder]:
        for found in _CLASS.finditer(path.read_text(encoding="utf-8", errors="replace")):
            yield found[1] or found[2]
