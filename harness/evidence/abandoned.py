"""What killed runs left running: found by their records, ended by their ids.

SIGKILL gives a climb no time to end its processes. The kernel and Ray's reaper end most; this ends the
rest, at the start of the next climb, before a leftover takes its memory or port.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import psutil

from harness.errors import VerlockError
from harness.evidence.model import Run, Seen, load
from harness.evidence.processes import Ended, find, sweep

RAY_FOLDER = "vl-"
"""Prefix of Ray's session folders. Its sockets lie below, and a Unix socket's path has at most 107 bytes."""


def sweep_abandoned(runs: Path, *, grace: float = 3.0) -> dict[str, list[Ended]]:
    """End the processes of runs under ``runs`` whose climb is gone without an end in its record.

    Returns what was ended, by run id; runs that left nothing are not in it. A run whose climb is still
    alive is left alone, and so is a folder whose record cannot be read.
    """
    ended = ((run.id, sweep(run.id, grace=grace)) for run in _abandoned(runs))
    return {run: processes for run, processes in ended if processes}


def left_over(runs: Path) -> dict[str, list[Seen]]:
    """The live processes of such runs, by run id; nothing is ended."""
    seen = ((run.id, find(run.id)) for run in _abandoned(runs))
    return {run: processes for run, processes in seen if processes}


def ray_folders() -> list[Path]:
    """Ray's session folders of climbs that were killed; a living climb's are not in it."""
    found = []
    for folder in Path(tempfile.gettempdir()).glob(f"{RAY_FOLDER}*-*"):
        owner = folder.name.removeprefix(RAY_FOLDER).split("-")[0]
        if owner.isdigit() and not psutil.pid_exists(int(owner)):
            found.append(folder)
    return found


def sweep_ray_folders() -> int:
    """Remove them; returns how many there were."""
    folders = ray_folders()
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
    return len(folders)


def _abandoned(runs: Path) -> Iterator[Run]:
    for path in sorted(runs.glob("*/run.json")):
        if path.parent.is_symlink():
            continue
        try:
            run = load(path)
        except VerlockError:
            continue
        if run.ended is None and not _climb_lives(run):
            yield run


def _climb_lives(run: Run) -> bool:
    """Whether the process in the record is there: the same number may be another process by now."""
    try:
        return psutil.Process(run.pid).create_time() <= datetime.fromisoformat(run.started).timestamp()
    except psutil.Error:
        return False
