"""What a run came to, and the first place where two runs part: rung, and step and metric in it.

Compared are verdicts, failures, what each rung measured, and verl's own metrics, to the last bit. Times,
memory and the names of processes and temporary folders differ between any two runs and say nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from harness.evidence import metrics
from harness.evidence.metrics import ABSENT, Step, Value
from harness.evidence.model import Failure, Run, Rung, load

Kind = Literal["verdict", "failure", "measured", "metric", "exit code"]
METRICS = "metrics.jsonl"
# Rungs that say what is installed: the fingerprint's matter.
_NOT_MEASURED = frozenset({"env"})
_TIMES = frozenset({"bytes", "command", "held", "seconds", "seconds_per_step", "timeline"})
_NUMBER = re.compile(r"0x[0-9a-f]+|\d+(?:\.\d+)?(?:e[-+]?\d+)?")
_RUN = re.compile(r"\d{8}-\d{6}-\d{3}-[0-9a-f]{4}")
_FOLDER = re.compile(r"(?:/[\w.+~-]+)+/")


class Parting(BaseModel):
    """The first thing that is not the same. ``step`` only for one of verl's metrics."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rung: str
    kind: Kind
    key: str
    step: int | None = None
    a: Value
    b: Value

    def line(self) -> str:
        """For people."""
        at = f" at step {self.step}" if self.step is not None else ""
        return f"{self.rung}: {self.kind} {self.key}{at}: {self.a!r} -> {self.b!r}"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What is compared of one run."""

    run: Run
    steps: Mapping[str, tuple[Step, ...]]
    """By the name of the rung whose trainer logged them."""


def read(folder: Path) -> Outcome:
    """Read a run folder. Raises :class:`RecordError`."""
    run = load(folder)
    found = sorted(folder.rglob(METRICS))
    last = run.rungs[-1].name if run.rungs else ""
    steps: dict[str, tuple[Step, ...]] = {}
    for path in found:
        place = path.parent.relative_to(folder).as_posix()
        steps[_top(run, last) if place == "." else place] = tuple(metrics.read(path))
    return Outcome(run=run, steps=steps)


def _top(run: Run, last: str) -> str:
    """The rung whose files lie in the run folder itself: ``ppo``, or the only trainer of a learning run."""
    return "ppo" if any(rung.name == "ppo" for rung in run.rungs) else last


def parting(a: Outcome, b: Outcome) -> Parting | None:
    """The first difference, rung by rung; none where all is the same to the last bit. Pure."""
    theirs = {rung.name: rung for rung in b.run.rungs}
    names = list(dict.fromkeys([*(rung.name for rung in a.run.rungs), *theirs]))
    ours = {rung.name: rung for rung in a.run.rungs}
    for name in names:
        one, other = ours.get(name), theirs.get(name)
        # verl's metrics first: a trainer's details are made from them, and know no step.
        found = _of_verdict(name, one, other) or _of_metrics(name, a.steps, b.steps) or _of_rung(one, other)
        if found:
            return found
    last = names[-1] if names else "start"
    return next(_of_end(last, a.run, b.run), None)


def _of_verdict(name: str, a: Rung | None, b: Rung | None) -> Parting | None:
    verdicts = (a.status if a else ABSENT, b.status if b else ABSENT)
    if verdicts[0] == verdicts[1]:
        return None
    return Parting(rung=name, kind="verdict", key="status", a=verdicts[0], b=verdicts[1])


def _of_rung(a: Rung | None, b: Rung | None) -> Parting | None:
    if a is None or b is None or a.name in _NOT_MEASURED:
        return None
    one, other = (dict(flat(rung.details)) for rung in (a, b))
    for key in [*one, *(key for key in other if key not in one)]:
        left, right = one.get(key, ABSENT), other.get(key, ABSENT)
        if metrics.bits(left) != metrics.bits(right):
            return Parting(rung=a.name, kind="measured", key=key, a=left, b=right)
    return None


def _of_metrics(
    name: str, a: Mapping[str, Sequence[Step]], b: Mapping[str, Sequence[Step]]
) -> Parting | None:
    """Those of a rung, and of the trainers that it ran in folders below its own."""
    for place in sorted({*a, *b}):
        if place.split("/")[0] != name:
            continue
        found = metrics.difference(a.get(place, ()), b.get(place, ()))
        if found:
            return Parting(rung=place, kind="metric", key=found.key, step=found.step, a=found.a, b=found.b)
    return None


def _of_end(last: str, a: Run, b: Run) -> Iterator[Parting]:
    for key, one, other in zip(("class", "signature", "cause"), failure(a), failure(b), strict=True):
        if one != other:
            yield Parting(rung=last, kind="failure", key=key, a=one, b=other)
    if a.exit_code != b.exit_code:
        yield Parting(rung=last, kind="exit code", key="exit_code", a=a.exit_code, b=b.exit_code)
    if a.status != b.status:
        yield Parting(rung=last, kind="verdict", key="status", a=a.status, b=b.status)


def failure(run: Run) -> tuple[str, str, str]:
    """Class, signature and cause, as far as two runs can share them."""
    told = run.failure
    return (told.failure_class, told.signature, cause(told)) if told else (ABSENT, ABSENT, ABSENT)


def cause(failure: Failure) -> str:
    """The first line of the cause, without what is new in each run: folders, pids, ports, times."""
    line = failure.cause.splitlines()[0] if failure.cause else ""
    return _NUMBER.sub("#", _FOLDER.sub("", _RUN.sub("<run>", line)))


def flat(node: Any, key: str = "") -> Iterator[tuple[str, Value]]:
    """Leaves by dotted key, without times: details are nested dicts and lists of numbers."""
    if isinstance(node, dict):
        for name, value in node.items():
            if name not in _TIMES:
                yield from flat(value, f"{key}.{name}" if key else str(name))
    elif isinstance(node, list):
        for number, value in enumerate(node):
            yield from flat(value, f"{key}.{number}")
    else:
        yield key, node
