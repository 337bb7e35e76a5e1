"""What differs between two runs, and a word of warning where it is more than one thing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.diagnose.diff import compare, read
from harness.errors import RecordError
from harness.evidence import given
from harness.evidence.model import Failure
from harness.evidence.record import RunRecord

SETTINGS = {"seed": 1, "reward": "rule", "overrides": ["trainer.nnodes=1"]}
PARTS = {"profile": "p" * 64, "lock": "l" * 64, "harness": "h" * 64}


def made(runs: Path, **changes: Any) -> Path:
    """A run folder as a climb leaves it; ``changes`` are what differs."""
    record = RunRecord.create(runs, profile="cpu", command=["verlock", "climb"])
    parts = PARTS | changes.get("parts", {})
    record.update(
        settings=SETTINGS | changes.get("settings", {}), fingerprint={"environment": "e", "parts": parts}
    )
    folder = record.folder
    config = {
        "data": {"seed": 1, "files": f"{folder.resolve()}/inputs/train.parquet"},
        "trainer": {"nnodes": 1},
    }
    config["data"] |= changes.get("data", {})
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    loss = changes.get("loss", 0.5)
    rows = [{"step": n, "data": {"actor/pg_loss": loss * n, "perf/time": n}} for n in (1, 2)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    patches = {"gloo": {"outcomes": {changes.get("patch", "applied"): 3}}}
    (folder / "precision.json").write_text(json.dumps({"patches": patches}))
    if "failure" in changes:
        record.rung_failed("ppo", changes["failure"])
    record.finish("failed" if "failure" in changes else "passed", 0)
    return folder


def test_two_equal_runs_differ_in_nothing(tmp_path: Path) -> None:
    """Their own folders are in their configurations, and are no difference."""
    found = compare(read(made(tmp_path)), read(made(tmp_path)))
    assert (found.causes, found.config, found.metrics, found.outcome, found.warning) == (
        (),
        (),
        None,
        (),
        None,
    )


def test_an_option_that_was_not_there_yet_is_no_difference(tmp_path: Path) -> None:
    assert compare(read(made(tmp_path)), read(made(tmp_path, settings={"deadline": None}))).causes == ()


CHANGES: list[tuple[dict[str, Any], list[tuple[str, str]]]] = [
    ({"settings": {"seed": 2}, "data": {"seed": 2}}, [("setting", "seed")]),
    ({"settings": {"overrides": ["trainer.nnodes=1", "+a.b=2"]}}, [("override", "a.b")]),
    ({"settings": {"overrides": ["trainer.nnodes=2"]}}, [("override", "trainer.nnodes")]),
    ({"parts": {"lock": "x" * 64}}, [("lock", "lock")]),
    ({"parts": {"harness": "x" * 64}}, [("harness", "harness")]),
    ({"parts": {"verl_overlay": {"commit": "c"}}}, [("verl", "verl_overlay")]),
    ({"data": {"seed": 3}}, [("config", "data.seed")]),
    ({"patch": "not needed"}, [("patch", "gloo")]),
]


@pytest.mark.parametrize(("change", "causes"), CHANGES, ids=lambda value: str(value)[:40])
def test_one_change_is_named_and_needs_no_warning(
    tmp_path: Path, change: dict[str, Any], causes: list[tuple[str, str]]
) -> None:
    found = compare(read(made(tmp_path)), read(made(tmp_path, **change)))
    assert [(c.kind, c.key) for c in found.causes] == causes
    assert found.warning is None


def test_two_changes_are_warned_of(tmp_path: Path) -> None:
    b = made(tmp_path, settings={"seed": 2}, parts={"lock": "x" * 64})
    warning = compare(read(made(tmp_path)), read(b)).warning
    assert warning is not None
    assert "2 things changed" in warning


def test_the_first_metric_that_differs_and_the_outcome_are_said(tmp_path: Path) -> None:
    failure = Failure(failure_class="data", signature="chat-template", cause="x")
    found = compare(read(made(tmp_path)), read(made(tmp_path, loss=0.25, failure=failure)))
    assert found.metrics is not None
    assert (found.metrics.step, found.metrics.key, found.metrics.b) == (1, "actor/pg_loss", 0.25)
    assert {change.key: change.b for change in found.outcome} == {
        "status": "failed",
        "failure": "chat-template",
        "rung ppo": "failed",
    }


def test_a_folder_without_a_record_is_told(tmp_path: Path) -> None:
    with pytest.raises(RecordError):
        read(tmp_path)


def test_a_file_that_was_edited_between_the_two_is_what_changed(tmp_path: Path) -> None:
    """The same words, another reward: without this nothing would seem to have changed."""
    reward = tmp_path / "judge.py"
    folders = []
    for text in ("1", "2"):
        reward.write_text(text)
        folder = made(tmp_path / "runs")
        document = json.loads((folder / "run.json").read_text())
        document["given"] = given.of([reward], {"VERL_X": text}).model_dump()
        (folder / "run.json").write_text(json.dumps(document))
        folders.append(folder)
    found = compare(*map(read, folders))
    assert [(change.kind, change.key) for change in found.causes] == [
        ("file", str(reward)),
        ("variable", "VERL_X"),
    ]
    assert compare(read(folders[0]), read(folders[0])).causes == ()


def test_two_causes_under_one_signature_are_an_outcome(tmp_path: Path) -> None:
    """What is another in each run, such as its folder and its processes, is none."""

    def fails(what: str) -> Path:
        cause = f"{what} (pid 7{len(list(tmp_path.iterdir()))}): KeyError\nmore of it"
        return made(
            tmp_path, failure=Failure(failure_class="model-logic", signature="reward-raised", cause=cause)
        )

    a, b, again = fails("judge.py:4: 'unsure'"), fails("judge.py:9: 'right'"), fails("judge.py:4: 'unsure'")
    (change,) = compare(read(a), read(b)).outcome
    assert (change.key, change.a, change.b) == (
        "cause",
        "judge.py:4: 'unsure' : KeyError",
        "judge.py:9: 'right' : KeyError",
    )
    assert compare(read(a), read(again)).outcome == ()
