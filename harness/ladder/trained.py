"""What one trainer run left: its steps, events and times."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from harness.evidence.metrics import Step


@dataclass(frozen=True, kw_only=True)
class Trained:
    """One trainer run that ended with exit code 0."""

    steps: list[Step]
    events: list[dict[str, Any]]
    seconds: float
    command: list[str]
    titles: Mapping[int, str]
    config: Any
    """verl's whole configuration, as OmegaConf."""

    def digests(self) -> list[str]:
        """The digests of the weights that the first rollout server took, in order."""
        return [e["digest"] for e in self.events if e["kind"] == "weights" and e.get("replica") == 0]

    def timeline(self) -> dict[str, float]:
        """Where the time goes: seconds from the start until each process had verl, and each weight update."""
        started = next(e for e in self.events if e["kind"] == "trainer_started")
        marks: dict[str, float] = {}
        updates = 0
        for event in self.events:
            if event["kind"] == "activated":
                # A Ray worker is still IDLE when it imports verl; the sampler saw what it became.
                title = self.titles.get(event["pid"], event["role"])
                marks[f"{title} {event['pid']}"] = round(_seconds(started, event), 2)
            elif event["kind"] == "weights":
                marks[f"weights {updates}"] = round(_seconds(started, event), 2)
                updates += 1
        return marks


def _seconds(earlier: Mapping[str, Any], later: Mapping[str, Any]) -> float:
    times = (datetime.fromisoformat(event["time"]) for event in (later, earlier))
    return (next(times) - next(times)).total_seconds()
