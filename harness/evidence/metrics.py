"""Reads what verl's own file logger wrote: one line a step, ``{"step": 1, "data": {...}}``.

verl writes with orjson: floats in the shortest form that gives the same bits back, NaN and infinity
as ``null``. So reading loses nothing but the difference between those two.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.errors import RecordError
from harness.evidence.files import explain

Value = float | int | str | bool | None
# Times and memory differ between any two runs and say nothing about the mathematics. Whole parts of a
# name count: verl logs actor/perf/cpu_memory_used_gb as well as perf/throughput.
TIMING = ("timing_s", "timing_per_token_ms", "perf", "timing")
ABSENT = "absent"


@dataclass(frozen=True, kw_only=True)
class Step:
    """All metrics that verl logged for one step."""

    step: int
    values: Mapping[str, Value]


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Where two runs part first; ``a`` or ``b`` is ``"absent"`` where one has no such step or key."""

    step: int
    key: str
    a: Value
    b: Value


def read(path: Path) -> list[Step]:
    """Read the file; lines of one step are merged, a last line that was cut by a kill is left out.

    Raises :class:`RecordError` when there is no file, or when another line is not verl's.
    """
    try:
        whole = path.read_text(encoding="utf-8").rpartition("\n")[0]
    except OSError as error:
        raise explain(error, path, what="read the metrics") from error
    steps: dict[int, dict[str, Value]] = {}
    for number, line in enumerate(whole.split("\n") if whole else [], start=1):
        try:
            document = json.loads(line)
            steps.setdefault(int(document["step"]), {}).update(document["data"])
        except (ValueError, KeyError, TypeError) as error:
            raise RecordError(
                "not a line of verl's file logger",
                where=f"{path}:{number}",
                why=str(error),
                todo='expected {"step": 1, "data": {...}}',
            ) from error
    return [Step(step=step, values=steps[step]) for step in sorted(steps)]


def column(steps: Iterable[Step], key: str) -> list[tuple[int, float]]:
    """Return ``(step, value)`` for each step that has a number under ``key``."""
    found = ((step.step, step.values.get(key)) for step in steps)
    return [(step, float(value)) for step, value in found if isinstance(value, int | float)]


def keys(steps: Iterable[Step]) -> list[str]:
    """Return all metric names, sorted."""
    return sorted({key for step in steps for key in step.values})


def difference(a: Sequence[Step], b: Sequence[Step], *, ignore: Sequence[str] = TIMING) -> Difference | None:
    """Return the first place where two runs differ by a single bit, or ``None``.

    Order: by step, then by key. Keys with one of ``ignore`` among their parts are left out.
    """
    left, right = ({step.step: step.values for step in steps} for steps in (a, b))
    for step in sorted(left.keys() | right.keys()):
        ours, theirs = left.get(step, {}), right.get(step, {})
        for key in sorted(ours.keys() | theirs.keys()):
            if not set(ignore).isdisjoint(key.split("/")):
                continue
            one, other = ours.get(key, ABSENT), theirs.get(key, ABSENT)
            if bits(one) != bits(other):
                return Difference(step=step, key=key, a=one, b=other)
    return None


def bits(value: Value) -> Value | bytes:
    """Make equality exact: ``0.0 == -0.0`` and ``1 == 1.0 == True`` in Python."""
    return struct.pack("<d", value) if isinstance(value, float) else f"{type(value).__name__}:{value}"
