"""What killed runs left running: found by their records, ended by their ids.

SIGKILL gives a climb no time to end its processes. The kernel and Ray's reaper end most; this ends the
rest, at the start of the next climb, before a leftover takes its memory or port.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import psutil

from harness.errors import VerlockError
from harness.evidence.model import Run, load
from harness.evidence.processes import Ended, sweep


def sweep_abandoned(runs: Path, *, grace: float = 3.0) -> dict[str, list[Ended]]:
    """End the processes of runs under ``runs`` whose climb is gone without an end in its record.

    Returns what was ended, by run id; runs that left nothing are not in it. A run whose climb is still
    alive is left alone, and so is a folder whose record cannot be read.
    """
    found: dict[str, list[Ended]] = {}
    for path in sorted(runs.glob("*/run.json")):
        if path.parent.is_symlink():
            continue
        try:
            run = load(path)
        except VerlockError:
            continue
        if run.ended is None and not _climb_lives(run) and (ended := sweep(run.id, grace=grace)):
            found[run.id] = ended
    return found


def _climb_lives(run: Run) -> bool:
    """Whether the process in the record is there: the same number may be another process by now."""
    try:
        return psutil.Process(run.pid).create_time() <= datetime.fromisoformat(run.started).timestamp()
    except psutil.Error:
        return False
