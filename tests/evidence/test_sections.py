"""The report's words on configuration, precision and the verdict, for every way in which a run can end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.evidence import report, sections
from harness.evidence.model import Failure
from harness.evidence.record import RunRecord

CONFIG = """
trainer: {nnodes: 1, logger: [console]}
data: {train_files: "{place}/inputs/train.parquet"}
"""
ORIGINS = {
    "user": ["trainer.nnodes"],
    "rung": ["data.train_files", "gone.key"],
    "profile": ["trainer.logger"],
}
LEDGER = {
    "schema_version": 1,
    "patches": {},
    "operations": 10,
    "forbidden": 1,
    "by_dtype": {"torch.float32": 9, "torch.bfloat16": 1},
    "attention": {},
    "violations": [
        {"what": "a bfloat16 tensor", "where": "x.py:7", "reason": "sm_61 has none", "role": "w", "pid": 7}
    ],
    "processes": [{"pid": 7}, {"pid": 8}],
}


@pytest.fixture
def record(tmp_path: Path) -> RunRecord:
    return RunRecord.create(tmp_path / "runs", profile="cpu", command=["verlock", "climb"])


@pytest.mark.parametrize("below", ["", "ppo-mock"])
def test_each_key_that_was_set_has_its_origin_and_the_value_that_verl_got(
    record: RunRecord, below: str
) -> None:
    """In the run folder, or in that of a rung below where the run ended early."""
    place = record.folder / below
    place.mkdir(exist_ok=True)
    (place / "config.yaml").write_text(CONFIG.replace("{place}", str(record.folder.absolute())))
    (place / "origins.json").write_text(json.dumps(ORIGINS))
    rows = [tuple(row.values()) for row in sections.configuration(record.folder)]
    assert rows == [
        ("user", "trainer.nnodes", "1"),
        ("rung", "data.train_files", "<run>/inputs/train.parquet"),
        ("rung", "gone.key", sections.ABSENT),
        ("profile", "trainer.logger", '["console"]'),
    ]
    page = report.render(record.folder)
    assert "who set what" in page
    assert "trainer.nnodes" in page


def test_without_a_trainer_there_is_no_such_table(record: RunRecord) -> None:
    assert sections.configuration(record.folder) == []
    assert "who set what" not in report.render(record.folder)


def test_the_ledger_is_shown_in_shares_with_its_violations(record: RunRecord) -> None:
    (record.folder / "precision.json").write_text(json.dumps(LEDGER))
    found = sections.precision(record.folder / "precision.json")
    (table,) = found["tables"]
    assert [(row["name"], row["share"]) for row in table["rows"]] == [
        ("torch.float32", 0.9),
        ("torch.bfloat16", 0.1),
    ]
    page = report.render(record.folder)
    for text in (
        "10 operations counted in 2 processes",
        "1 of what the profile forbids",
        "x.py:7",
        "sm_61 has none",
    ):
        assert text in page
    assert "pid&#34;: 8" not in page, "the processes' own books are not poured onto the page"


def test_a_run_that_counted_nothing_says_so(record: RunRecord) -> None:
    (record.folder / "precision.json").write_text(
        json.dumps({"schema_version": 1, "active": [], "patches": {}})
    )
    assert "Nothing was counted" in report.render(record.folder)


FAILURE = Failure(failure_class="data", signature="s", cause="row 3 has no answer\nmore")


@pytest.mark.parametrize(
    ("ends", "said"),
    [
        ([], "no end was written: killed, or still running; last seen before the first rung after 0.0 s"),
        (["env"], "1 rungs passed, up to env: env is right"),
        (["env", "-ppo"], "ppo failed: row 3 has no answer; env passed before"),
        (["env", "?ppo"], "ended by SIGTERM in ppo after 3.5 s; env passed before"),
    ],
)
def test_the_verdict_is_one_sentence(
    record: RunRecord, ends: list[str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    status: Any = "passed" if ends and ends[-1].isalpha() else "interrupted"
    for name in ends:
        if name.startswith("-"):
            record.rung_failed(name[1:], FAILURE)
            status = "failed"
        elif name.startswith("?"):
            record.rung_started(name[1:])
        else:
            record.rung_passed(name, f"{name} is right")
    if ends:
        record.update(ended_by="SIGTERM" if status == "interrupted" else None)
        record.finish(status, 0)
    monkeypatch.setattr(record, "_run", record.run.model_copy(update={"seconds": 3.5 if ends else 0.0}))
    record._write()
    assert sections.verdict(record.run) == said
    assert said in report.render(record.folder)


RAY = (
    "verl/x.py:7: a worker died or was killed while executing a task by an unexpected system error. To "
    "troubleshoot, check the logs. RayTask ID: ffffffffffffffff01000000 Worker ID: 28ab71 Node ID: 77aa12 "
    "Worker port: 10002 Worker PID: 4711 Worker exit type: SYSTEM_ERROR"
)


@pytest.mark.parametrize(
    ("cause", "first"),
    [
        (
            RAY,
            "verl/x.py:7: a worker died or was killed while executing a task by an unexpected system error.",
        ),
        ("row 3 has no answer. So it is\nmore", "row 3 has no answer. So it is"),
        ("x" * 400, "x" * 159 + "…"),
    ],
)
def test_a_cause_has_one_line_and_the_rest_is_folded(record: RunRecord, cause: str, first: str) -> None:
    assert sections.headline(cause) == first
    record.rung_failed("ppo", FAILURE.model_copy(update={"cause": cause}))
    record.finish("failed", 22)
    page = report.render(record.folder)
    assert page.count(cause) == 1, "all that was said stands once"
    assert page.index("<summary>all that was said</summary>") < page.index(cause)
    assert page.count(first) == (3 if cause.startswith(first) else 2)


def test_what_fits_into_a_line_is_not_folded(record: RunRecord) -> None:
    record.rung_failed("ppo", FAILURE.model_copy(update={"cause": "row 3 has no answer"}))
    assert "all that was said" not in report.render(record.folder)


def test_an_interrupted_run_is_told_what_to_do(record: RunRecord) -> None:
    record.finish("interrupted", 130)
    assert "start it again: <code>verlock climb</code>" in report.render(record.folder)


TOKEN = "hf_" + "Zz9" * 8


def test_the_page_that_people_send_holds_no_secret(record: RunRecord) -> None:
    """In the command, the settings, the configuration's two columns, and what failed."""
    word = f"+ray_kwargs.ray_init.runtime_env.env_vars.HF_TOKEN={TOKEN}"
    record.update(
        command=["verlock", "climb", word], settings={"overrides": [word, "wandb_key=" + "0a1b" * 10]}
    )
    (record.folder / "origins.json").write_text(
        json.dumps({"user": ["env_vars.MY_PASSWORD", "env_vars.HF_TOKEN", "data.prompt_key", "my.token"]})
    )
    values = {"env_vars": {"MY_PASSWORD": "hunter2hunter2", "HF_TOKEN": TOKEN}}
    values |= {"data": {"prompt_key": "my_prompts"}, "my": {"token": None}}
    (record.folder / "config.yaml").write_text(json.dumps(values))
    record.rung_failed("ppo", FAILURE.model_copy(update={"cause": f"the hub refused {TOKEN}"}))
    page = report.render(record.folder)
    assert [word for word in (TOKEN, "0a1b0a1b", "hunter2") if word in page] == []
    assert "my_prompts" in page, "the name of a column is none"
    assert page.count("&lt;removed:secret&gt;") == 7, "command, settings, table, and twice the cause"
    assert "<removed:secret>" not in page, "it would be a tag"
    assert TOKEN in (record.folder / "run.json").read_text(), "a replay needs it"
