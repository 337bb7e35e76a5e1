"""The processes of a run: find them all, count their memory, end what is left.

They carry ``VERLOCK_RUN_ID`` in their environment, which survives double forks, new sessions and
new process groups (Ray's workers have all three). Descendants are added, for those whose
environment cannot be read.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass

import psutil

from harness.evidence.model import Seen
from harness.evidence.titles import title

RUN_VARIABLE = "VERLOCK_RUN_ID"
# Between fork and exec a process shows its parent's environment: decide "not ours" only after this.
_SETTLED_SECONDS = 5.0


@dataclass(frozen=True, kw_only=True)
class Ended:
    """What a sweep did to one process: it left by itself, on SIGTERM, or on SIGKILL."""

    pid: int
    title: str
    how: str


class Members:
    """Finds a run's processes again and again, reading each environment as seldom as possible."""

    def __init__(self, run_id: str, *, with_self: bool = False) -> None:
        """``run_id`` is what the run's processes carry; ``with_self`` adds this one and its descendants."""
        self._run_id = run_id
        self._ours: set[psutil.Process] = {psutil.Process()} if with_self else set()
        self._others: set[psutil.Process] = set()

    def find(self) -> list[psutil.Process]:
        """Return the live processes that carry the run's id, and their descendants.

        The calling process is in it only if it was *started* with the id: setting the variable in
        ``os.environ`` later does not show. Zombies are not in it: they hold no memory.
        """
        alive = list(psutil.process_iter())
        self._ours &= set(alive)
        self._others &= set(alive)
        for process in alive:
            if process not in self._ours and process not in self._others:
                self._decide(process)
        return list(self._with_descendants(alive))

    def _decide(self, process: psutil.Process) -> None:
        try:
            if process.environ().get(RUN_VARIABLE) == self._run_id:
                self._ours.add(process)
            elif time.time() - process.create_time() > _SETTLED_SECONDS:
                self._others.add(process)
        except psutil.AccessDenied:
            self._others.add(process)
        except (psutil.Error, OSError):
            pass

    def _with_descendants(self, alive: list[psutil.Process]) -> Iterator[psutil.Process]:
        parents = {process.pid: parent_of(process) for process in alive}
        roots = {process.pid for process in self._ours}
        for process in alive:
            pid, hops = process.pid, 0
            while pid not in roots and pid in parents and hops < 64:
                pid, hops = parents[pid], hops + 1
            if pid in roots and _is_live(process):
                yield process


def parent_of(process: psutil.Process) -> int:
    """Return the parent's pid, 0 when the process has gone."""
    try:
        return process.ppid()
    except psutil.Error:
        return 0


def _is_live(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def name_of(process: psutil.Process) -> str:
    """Return the process's title, or ``?`` when it has just gone."""
    try:
        return title(process.cmdline()) or process.name()
    except (psutil.Error, OSError):
        return "?"


def find(run_id: str) -> list[Seen]:
    """List a run's live processes."""
    return [Seen(pid=process.pid, title=name_of(process)) for process in Members(run_id).find()]


def sweep(
    run_id: str, *, patience: float = 0.0, grace: float = 3.0, spare: Collection[int] = ()
) -> list[Ended]:
    """End all that is left of a run, and say what that was.

    First wait up to ``patience`` seconds for the processes to leave by themselves (Ray needs one or
    two), then SIGTERM, then SIGKILL to those that are still there after ``grace`` seconds. Repeats
    until none is found, because a process can start another while it is being ended. The calling
    process and its ancestors are never touched, nor are the pids in ``spare``: a fork server outlives
    the trainer runs that it serves.
    """
    members = Members(run_id)
    ended: list[Ended] = []
    deadline = time.monotonic() + patience
    while _targets(members, spare) and time.monotonic() < deadline:
        time.sleep(0.1)
    for attempt in range(5):
        targets = _targets(members, spare)
        if not targets:
            break
        ended += _end(targets, grace=grace if attempt == 0 else 0.5)
    return ended


def kill(run_id: str, *, spare: Collection[int] = ()) -> int:
    """SIGKILL to all of a run at one moment, as when a node is lost; returns how many that were.

    The same are left alone as by :func:`sweep`.
    """
    targets = _targets(Members(run_id), spare)
    for process in targets:
        _signal(process, kill=True)
    return len(targets)


def _targets(members: Members, spare: Collection[int]) -> list[psutil.Process]:
    here = psutil.Process()
    spared = {here.pid, *spare, *(parent.pid for parent in here.parents())}
    return [process for process in members.find() if process.pid not in spared]


def _end(targets: list[psutil.Process], *, grace: float) -> list[Ended]:
    names = {process: name_of(process) for process in targets}
    for process in targets:
        _signal(process, kill=False)
    gone, alive = psutil.wait_procs(targets, timeout=grace)
    for process in alive:
        _signal(process, kill=True)
    psutil.wait_procs(alive, timeout=2.0)
    return [Ended(pid=p.pid, title=names[p], how="SIGTERM") for p in gone] + [
        Ended(pid=p.pid, title=names[p], how="SIGKILL") for p in alive
    ]


def _signal(process: psutil.Process, *, kill: bool) -> None:
    with suppress(psutil.Error):
        process.kill() if kill else process.terminate()
