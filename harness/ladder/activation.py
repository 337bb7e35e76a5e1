"""Proof that the plug-in was active in every process that ran verl.

The list of processes comes from the operating system, the proofs from the processes themselves: one
that came up without the plug-in is seen by the first and missing from the second.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from harness.evidence.model import Seen

WITHOUT_VERL = (
    # TransferQueue's actors (verl's v1 trainer) import torch, but not verl.
    "TransferQueueController",
    "SimpleStorageUnit",
    # Ray's own agents.
    "DashboardAgent",
    "RuntimeEnvAgent",
    # A function that verl ships by value (single_controller/ray/base.py); it asks for a port, no more.
    "get_master_addr_port",
)


def runs_verl(title: str) -> bool:
    """Whether a process with this title has verl in it: the driver, and Ray actors and tasks."""
    if "verl.trainer.main_ppo" in title:
        return True
    return (
        title.startswith("ray::") and "IDLE" not in title and not any(name in title for name in WITHOUT_VERL)
    )


def unproven(processes: Iterable[Seen], events: Iterable[Mapping[str, Any]]) -> list[Seen]:
    """The processes that ran verl and left no line of activation.

    A child forked from an active process (``datasets`` filters rows in some) has its parent's modules,
    patches included, and imports nothing again.
    """
    active = {event["pid"] for event in events if event["kind"] == "activated"}
    return [p for p in processes if runs_verl(p.title) and not {p.pid, p.parent} & active]
