"""From facts to findings. Pure: the same facts and the same profile give the same findings anywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from harness.build.doctor import gpu, machine, software, unknown
from harness.build.doctor.facts import Facts
from harness.build.doctor.finding import Finding, Measure

Check = Callable[[Facts, Measure], Iterator[Finding]]
CHECKS: tuple[Check, ...] = (
    unknown.facts,
    machine.host,
    machine.memory,
    machine.disk,
    machine.shared_memory,
    machine.ulimits,
    machine.leftovers,
    gpu.presence,
    gpu.driver,
    gpu.card,
    gpu.torch,
    software.environment,
    software.wheels,
    software.mps,
    software.engine,
)
_ORDER = {"error": 0, "warning": 1, "info": 2}


def evaluate(facts: Facts, against: Measure) -> tuple[Finding, ...]:
    """All findings, the gravest first. On a machine of another kind only that is said: the rest is noise."""
    found = [one for check in CHECKS for one in check(facts, against)]
    wrong = [one for one in found if one.id == "host.system"]
    return tuple(sorted(wrong or found, key=lambda one: _ORDER[one.severity]))


def suggest(facts: Facts) -> str:
    """The profile that a machine is for."""
    if facts.host.system == "darwin":
        return "mac-m4-16g"
    known = gpu.capability(facts.nvidia.cards[0]) if facts.nvidia.cards else None
    return {"6": "p40-sm61", "8": "a100", "9": "a100"}.get((known or "").partition(".")[0], "cpu")
