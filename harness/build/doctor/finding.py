"""One finding of the doctor, and what the checks compare the facts with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from harness.build.audit.limits import Limits
from harness.errors import Problem
from harness.profiles import Profile
from harness.profiles.words import Model, Text

Severity = Literal["error", "warning", "info"]
CheckId = Literal[
    "disk.free",
    "disk.nearly-full",
    "engine.none",
    "environment.differs",
    "environment.forbidden",
    "environment.missing",
    "environment.ray",
    "environment.torch",
    "facts.unknown",
    "gpu.absent",
    "gpu.architecture",
    "gpu.busy",
    "gpu.capability",
    "gpu.driver-ceiling",
    "gpu.driver-floor",
    "gpu.driver-missing",
    "gpu.hidden",
    "gpu.memory",
    "gpu.unseen",
    "host.cpus",
    "host.glibc",
    "host.macos",
    "host.system",
    "leftovers",
    "limits.files",
    "limits.processes",
    "memory.available",
    "memory.total",
    "mps.available",
    "mps.built",
    "mps.cannot",
    "mps.tensor",
    "shm.size",
    "wheels.refused",
]


class Finding(Model):
    """What stands in the way, why that is believed, and what to do."""

    id: CheckId
    severity: Severity
    """``error``: the profile cannot run here. ``warning``: it may fail or be slow. ``info``: to know."""
    what: Text
    reason: Text
    remedy: Text

    def problem(self) -> Problem:
        """As an error's part."""
        return Problem(what=self.what, where=self.id, why=self.reason, todo=self.remedy)


class Measure(Model):
    """What the facts are held against; data, so that a check stays pure."""

    profile: Profile
    locked: Mapping[str, str]
    """Name and version of the lock for the facts' machine; empty where the profile has none for it."""
    limits: Limits
    disk: int
    """Bytes that the environment takes at most, by its budget."""
