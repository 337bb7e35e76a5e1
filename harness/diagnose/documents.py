"""What ``diff`` and ``localise`` print with ``--json``, as models; their schemas are generated from them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Self

from pydantic import BaseModel, ConfigDict

from harness.diagnose.diff import Comparison, Facts, Kind
from harness.diagnose.localise import Located
from harness.evidence.metrics import Value


class _Document(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Changed(_Document):
    """One thing that is not the same in the two runs; ``"absent"`` where one has none."""

    kind: Kind
    key: str
    a: Any
    b: Any


class Parted(_Document):
    """Where the metrics part first."""

    step: int
    key: str
    a: Value
    b: Value


class Diffed(_Document):
    """``verlock diff --json``."""

    steps: tuple[int, int]
    """How many training steps each run has metrics of."""
    causes: list[Changed]
    """What somebody changed."""
    config: list[Changed]
    """What verl got of it."""
    outcome: list[Changed]
    metrics: Parted | None
    """None: the same to the last bit, or neither has any."""
    warning: str | None

    @classmethod
    def of(cls, a: Facts, b: Facts, found: Comparison) -> Self:
        """The comparison of two runs."""
        return cls(
            steps=(len(a.steps), len(b.steps)),
            causes=[Changed(**vars(change)) for change in found.causes],
            config=[Changed(**vars(change)) for change in found.config],
            outcome=[Changed(**vars(change)) for change in found.outcome],
            metrics=Parted(**asdict(found.metrics)) if found.metrics else None,
            warning=found.warning,
        )


class Localised(_Document):
    """``verlock localise --json``: paths are of run folders."""

    boundary: str | None
    """None: it fails with everything minimal."""
    of: list[str]
    """The boundaries that were toggled."""
    failing: str
    passing: str | None
    """It differs from ``failing`` in the boundary alone."""
    runs: list[str]
    """All that were made, in their order."""

    @classmethod
    def by(cls, found: Located) -> Self:
        """The answer of a search."""
        return cls(
            boundary=found.boundary,
            of=list(found.of),
            failing=str(found.failing),
            passing=str(found.passing) if found.passing else None,
            runs=[str(path) for path in found.made],
        )
