"""The schemas of what scripts read are current, and the documents of real commands fit them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from jsonschema import Draft202012Validator, ValidationError

from harness.build import documents
from harness.cli import app
from harness.evidence.model import Failure, Given
from harness.evidence.record import RunRecord

ROOT = Path(__file__).parents[2]


def check(name: str, document: Any) -> None:
    Draft202012Validator(json.loads(documents.path(name).read_text())).validate(document)


@pytest.mark.parametrize("name", documents.DOCUMENTS)
def test_each_committed_schema_is_current_and_is_one(name: str) -> None:
    assert documents.path(name).read_text() == documents.text(name)
    Draft202012Validator.check_schema(json.loads(documents.text(name)))


@pytest.fixture
def record(tmp_path: Path) -> RunRecord:
    """A failed run with something in most of its fields."""
    made = RunRecord.create(tmp_path / "runs", profile="cpu", command=["verlock", "climb"])
    made.rung_passed("env", "all there", details={"files": 3})
    made.rung_failed("ppo", Failure(failure_class="data", signature="s", cause="row 3", fix="mend it"))
    made.update(given=Given(folder="/x", variables={"VERL_X": "1"}), settings={"seed": 1})
    made.finish("failed", 22)
    (made.folder / "output.log").write_text(
        "Traceback (most recent call last):\n"
        "  File \"/x/judge.py\", line 3, in score\n    d['a']\nKeyError: 'a'\n"
    )
    return made


def verlock(*words: str | Path) -> tuple[int, Any]:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "harness", *map(str, words), "--json"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return done.returncode, json.loads(done.stdout)


def test_documents_of_real_commands_fit(record: RunRecord, tmp_path: Path) -> None:
    check("run", json.loads((record.folder / "run.json").read_text()))
    check("climb", {"run": "x", **record.run.model_dump(mode="json", by_alias=True)})
    archive = tmp_path / "b.tar.gz"
    for name, words, code in (
        ("bundle", ("bundle", record.folder, "--out", archive), 0),
        ("error", ("bundle", record.folder, "--out", archive), 42),
        ("diagnose", ("diagnose", record.folder), 0),
        ("diff", ("diff", record.folder, record.folder), 0),
        ("report", ("report", record.folder), 0),
        ("next", ("next", "--runs", record.folder.parent), 0),
        ("error", ("replay", tmp_path), 16),
        ("error", ("bisect", "a..b", "--verl-source", tmp_path), 41),
        ("error", ("climb", "--no-such-option"), 2),
    ):
        exit_code, document = verlock(*words)
        assert exit_code == code, document
        check(name, document)
        if name == "error":
            assert document["error"]["exit_code"] == code


def test_a_field_that_is_not_in_the_schema_is_found(record: RunRecord) -> None:
    document = json.loads((record.folder / "run.json").read_text())
    with pytest.raises(ValidationError):
        check("run", document | {"planted": 1})
    with pytest.raises(ValidationError):
        check("run", document | {"status": "maybe"})


def commands() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, command in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined]
        below = getattr(command, "commands", None)
        found |= {f"{name} {inner}": one for inner, one in below.items()} if below else {name: command}
    return found


def test_every_command_takes_json_and_stands_in_the_table() -> None:
    table = (documents.path("run").parent / "README.md").read_text()
    for name, command in commands().items():
        assert any("--json" in getattr(option, "opts", []) for option in command.params), name
        assert f"`{name}`" in table or f"`{name.split()[0]}`" in table or f"`{name.split()[0]} " in table, (
            name
        )
