"""The trainer's output, line by line, into events; and the findings into record and console."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from harness.console import Output
from harness.evidence import events
from harness.evidence.health.rules import Terms
from harness.evidence.model import load
from harness.evidence.record import RunRecord
from harness.ladder import health

STEP = "(TaskRunner pid=4) step:{} - critic/score/mean:0.1 - actor/grad_norm:0.2"
SKIPPED = "(WorkerDict pid=7) WARN: grad_norm is not finite: nan"


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunRecord:
    made = RunRecord.create(tmp_path / "runs", profile="cpu", command=["verlock", "climb"])
    for name, value in made.environment().items():
        monkeypatch.setenv(name, value)
    return made


def test_each_step_is_noted_once(record: RunRecord) -> None:
    watch = health.StepWatch(record.id, "ppo")
    lines = ["starting", STEP.format(1), SKIPPED, "more", STEP.format(2), STEP.format(3)]
    assert [watch.line(line) for line in lines] == [None, 1, None, None, 2, 3]
    seen = [(e["kind"], e["step"], e["rung"]) for e in events.read(record.folder / "events.jsonl")]
    assert seen == [
        ("memory", 1, "ppo"),
        ("memory", 2, "ppo"),
        ("gradient_skipped", 2, "ppo"),
        ("memory", 3, "ppo"),
    ]


def test_a_step_notes_what_nvml_tells(record: RunRecord, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = [{"index": 0, "utilisation_percent": 40.0}]
    monkeypatch.setattr(health.Gpus, "read", lambda self: seen)
    with health.StepWatch(record.id, "ppo", on_gpu=True) as watch:
        watch.line(STEP.format(1))
    noted = [e for e in events.read(record.folder / "events.jsonl") if e["kind"] == "gpu"]
    assert [(e["rung"], e["step"], e["gpus"]) for e in noted] == [("ppo", 1, seen)]


def told(record: RunRecord) -> str:
    said = io.StringIO()
    seen = events.read(record.folder / "events.jsonl")
    health.judge(record, Output(file=said), record.folder, seen, Terms(rung="ppo"))
    return said.getvalue()


def test_a_skipped_gradient_is_found_where_verl_only_warns(record: RunRecord) -> None:
    watch = health.StepWatch(record.id, "ppo")
    for line in (STEP.format(1), SKIPPED, STEP.format(2)):
        watch.line(line)
    data = {"actor/grad_norm": 0.2}
    lines = [json.dumps({"step": step, "data": data}) for step in (1, 2)]
    (record.folder / "metrics.jsonl").write_text("\n".join([*lines, ""]))
    said = told(record)
    assert "warning gradient-not-finite (step 2): a gradient is not finite in step 2" in said
    assert "do:" in said
    (finding,) = load(record.folder).findings
    assert (finding.id, finding.step, finding.rung) == ("gradient-not-finite", 2, "ppo")
    assert load(record.folder).failure is None


def test_metrics_that_cannot_be_read_hide_nothing(record: RunRecord) -> None:
    (record.folder / "metrics.jsonl").write_text("not verl's\n")
    assert "no rules of health" in told(record)
    assert load(record.folder).findings == []


def test_a_well_run_says_nothing(record: RunRecord) -> None:
    assert told(record) == ""


def test_what_is_survived_is_kept_once(record: RunRecord) -> None:
    watch = health.StepWatch(record.id, "ppo")
    low = "(raylet) {} Workers (tasks / actors) killed due to memory pressure (OOM), 0 Workers crashed"
    for line in (low.format(1), STEP.format(1), low.format(2)):
        watch.line(line)
    said = io.StringIO()
    health.tell(record, Output(file=said), list(watch.survived.values()))
    assert "warning memory-low: 1 of Ray's workers" in said.getvalue()
    assert [finding.id for finding in load(record.folder).findings] == ["memory-low"]
