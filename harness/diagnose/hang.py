"""Why a run stands still: it waits for what Ray has not, or it is stuck in some code. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.errors import FailureClass
from harness.evidence.stacks import Stack

# faulthandler: File "x.py", line 3 in f. py-spy: f (x.py:3). Both name the innermost call first.
_FAULTHANDLER = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<function>.+)$')
_PY_SPY = re.compile(r"^\s+(?P<function>\S.*) \((?P<file>[^():]+):(?P<line>\d+)\)$")
_THREAD = re.compile(r"^(?:Current thread|Thread) ")
_INSTALLED = re.compile(
    r"^[^/]|(?:site|dist)-packages/|/lib/python\d|/harness/(?:adapt|evidence|ladder|warm)/"
)
_IMPORTING = re.compile(r"<frozen importlib\._bootstrap>")
_VERL = re.compile(r"/verl/")
_SHOWN = ("CPU", "GPU", "memory")
# transfer_queue/storage/bootstrap: waits for the address of each unit that it has asked Ray to start.
_STORAGE = "initialize_simple_storage"
# verl/trainer/ppo/v1/replay_buffer.py. sys.exit in a reward function ends its thread without a word.
_WAITS_FOR_SAMPLES = frozenset({"_wait_for_next_poll"})
_SAMPLES = (
    "a sample never comes back: climb --to reward first; a reward that calls sys.exit leaves no other trace"
)
_RANKS = "read the other ranks' stacks: a collective waits for the rank that is elsewhere"


@dataclass(frozen=True, kw_only=True)
class Demand:
    """What somebody waits for: so many bundles of resources."""

    kind: str
    bundle: Mapping[str, float]
    count: int


@dataclass(frozen=True, kw_only=True)
class RayState:
    """What a Ray cluster has, what is used of it, and what is waited for."""

    total: Mapping[str, float]
    used: Mapping[str, float]
    demands: Sequence[Demand]


@dataclass(frozen=True, kw_only=True)
class Call:
    """Where a thread is."""

    file: str
    line: int
    function: str
    process: str
    pid: int


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What a hang is."""

    signature: str
    what: str
    why: str
    todo: str
    where: str | None = None
    failure_class: FailureClass = "distributed"
    also: FailureClass | None = None


def evaluate(stacks: Sequence[Stack], ray: RayState | None) -> Verdict:
    """Pending before stuck: a process that waits for an actor that cannot start looks stuck as well."""
    lacking = _lacking(ray) if ray is not None else []
    if ray is not None and (lacking or _storage_waits(ray, stacks)):
        return _pending(ray, lacking, stacks)
    call = _innermost(stacks, own=True)
    if call is not None:
        scores = "reward" in f"{call.file} {call.process}".lower() or len(stacks) == 1
        return Verdict(
            signature="hang",
            what=f"stuck in {call.function}, called in {call.process} (pid {call.pid})",
            where=f"{call.file}:{call.line}",
            why="this code of yours does not return, and nothing lacks resources",
            todo="give what it waits for a time limit (a request, a lock), or call it by itself on one row",
            failure_class="model-logic" if scores else "distributed",
            also="distributed" if scores and len(stacks) > 1 else None,
        )
    call = _innermost(stacks, own=False)
    if call is None and any(_IMPORTING.search(stack.text) for stack in stacks):
        return Verdict(
            signature="hang",
            what="modules are still being imported",
            why="no process waits for resources; a busy machine or a network file system is slow",
            todo="give it more time with --deadline",
            also="environment",
        )
    return Verdict(
        signature="hang",
        what=f"stuck in {call.function} of verl, in {call.process} (pid {call.pid})"
        if call
        else "stuck, and no process shows where",
        where=f"{call.file}:{call.line}" if call else None,
        why="no process waits for resources, and none is in code of your own",
        todo=_SAMPLES if call and call.function in _WAITS_FOR_SAMPLES else _RANKS,
    )


def _lacking(ray: RayState) -> list[Demand]:
    """Demands that cannot be met: more than there is, or more than is left while nothing moves."""
    return [
        demand
        for demand in ray.demands
        if any(
            amount * (demand.count if demand.kind == "placement group" else 1)
            > ray.total.get(name, 0.0) - ray.used.get(name, 0.0)
            for name, amount in demand.bundle.items()
        )
    ]


def _storage_waits(ray: RayState, stacks: Sequence[Stack]) -> bool:
    """TransferQueue stands where it starts its storage units, a CPU each, and every CPU is taken.

    Ray does not always report the units that it could not start yet as a demand (seen with Ray 2.55).
    """
    starting = any(_STORAGE in stack.text for stack in stacks)
    return starting and ray.total.get("CPU", 0.0) - ray.used.get("CPU", 0.0) < 1.0


def _pending(ray: RayState, lacking: Sequence[Demand], stacks: Sequence[Stack]) -> Verdict:
    queue = any("transfer_queue" in stack.text for stack in stacks)
    asked = "; ".join(f"{d.count} x {_amounts(d.bundle)} ({d.kind})" for d in lacking)
    asked = asked or "more storage units of TransferQueue, each with a CPU of its own"
    has = ", ".join(
        f"{_number(ray.total[n])} {n} ({_number(ray.used[n])} used)" for n in _SHOWN if n in ray.total
    )
    return Verdict(
        signature="transfer-queue-waits-for-cpus" if queue else "ray-cannot-schedule",
        what=f"pending for want of resources, not stuck: Ray is asked for {asked}",
        why=f"the cluster has {has}",
        todo="set transfer_queue.backend.SimpleStorage.num_data_storage_units=1, or give Ray more CPUs"
        if queue
        else "ask for less (n_gpus_per_node, num_workers, num_cpus of the workers), or give Ray more",
        also="config",
    )


def _amounts(bundle: Mapping[str, float]) -> str:
    return "{" + ", ".join(f"{name}: {_number(value)}" for name, value in sorted(bundle.items())) + "}"


def _number(value: float) -> str:
    return f"{value / 2**30:.1f} GiB" if value >= 2**20 else f"{value:g}"


def _innermost(stacks: Sequence[Stack], *, own: bool) -> Call | None:
    """The innermost call of the user's own code, or of verl's, in the first thread that has one.

    Workers before drivers: those who wait for a worker name it only as ``ray.get``.
    """
    for stack in sorted(stacks, key=lambda s: not s.title.startswith("ray::")):
        for thread in _threads(stack.text):
            for file, line, function in thread:
                mine = not _INSTALLED.search(file) if own else _VERL.search(file) is not None
                if mine and (not own or not _VERL.search(file)):
                    return Call(file=file, line=line, function=function, process=stack.title, pid=stack.pid)
    return None


def _threads(text: str) -> list[list[tuple[str, int, str]]]:
    threads: list[list[tuple[str, int, str]]] = [[]]
    for line in text.splitlines():
        if _THREAD.match(line):
            threads.append([])
        found = _FAULTHANDLER.match(line) or _PY_SPY.match(line)
        if found:
            threads[-1].append((found["file"], int(found["line"]), found["function"]))
    return [thread for thread in threads if thread]
