"""Activation is proven in every process that ran verl, or the run does not pass."""

from __future__ import annotations

import pytest

from harness.evidence.model import Seen
from harness.ladder.activation import runs_verl, unproven

TITLES = [
    ("/env/bin/python -m verl.trainer.main_ppo data.train_batch_size=8", True),
    ("verl.trainer.main_ppo", True),
    ("ray::TaskRunner.run", True),
    ("ray::aaBBccWorkerDict_0:0:WorkerDict", True),
    ("ray::WorkerDict", True),
    ("ray::HfRolloutServer", True),
    ("ray::AgentLoopWorker", True),
    ("ray::RewardLoopWorker", True),
    ("ray::SomeActorOfTomorrow.method", True),
    ("ray::IDLE", False),
    ("ray::TransferQueueController", False),
    ("ray::SimpleStorageUnit.put", False),
    ("ray::DashboardAgent", False),
    ("raylet", False),
    ("gcs_server", False),
    ("harness", False),
]


@pytest.mark.parametrize(("title", "expected"), TITLES)
def test_which_processes_run_verl(title: str, expected: bool) -> None:
    """An actor that nobody has heard of counts: unknown is not safe."""
    assert runs_verl(title) is expected


def test_a_process_without_a_line_is_found() -> None:
    worker, silent = (
        Seen(pid=pid, title=f"ray::{name}") for pid, name in [(7, "WorkerDict"), (8, "RewardLoopWorker")]
    )
    processes = [Seen(pid=1, title="raylet"), worker, silent]
    active = [{"kind": "activated", "pid": 7}, {"kind": "patch", "pid": 8, "patch": "x"}]
    assert unproven(processes, active) == [silent]
    assert unproven(processes, [*active, {"kind": "activated", "pid": 8}]) == []


def test_no_events_at_all_prove_nothing() -> None:
    worker = Seen(pid=7, title="ray::WorkerDict")
    assert unproven([worker], []) == [worker]


def test_unreadable_events_are_no_proof_and_no_crash() -> None:
    """A full disk cuts a line: the reader makes it an event without a pid."""
    worker = Seen(pid=7, title="ray::WorkerDict")
    assert unproven([worker], [{"kind": "unreadable", "line": 1, "text": ""}]) == [worker]
