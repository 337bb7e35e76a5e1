"""What to run next follows from the records, and a tick has a record of this very state behind it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import pytest

from harness.errors import FailureClass
from harness.evidence import checklist, next_step
from harness.evidence.checklist import ITEMS
from harness.evidence.model import Failure, Image, Run, Rung
from harness.evidence.record import RunRecord

PARTS = {"profile": "p", "lock": "l", "harness": "h"}
SETTINGS = {"rollout": "hf", "checkpoint": "disk", "model": "tiny", "data": "tiny", "verl_source": None}
WHOLE = ("env", "ppo")
FULL = (*WHOLE, "checkpoint", "ppo-2ranks")


def run(number: int, *rungs: str, failed: str | None = None, **fields: Any) -> Run:
    made = [Rung(name=name, status="passed") for name in rungs]
    made += [Rung(name=failed, status="failed")] if failed else []
    settings = SETTINGS | fields.pop("settings", {})
    parts = PARTS | fields.pop("parts", {})
    return Run(
        **{
            "id": f"run-{number}",
            "profile": "cpu",
            "command": ["verlock", "climb"],
            "started": f"2026-01-{number:02}",
            "pid": 1,
            "rungs": made,
            "status": "failed" if failed else "passed",
            "settings": settings,
            "fingerprint": {"parts": parts},
            **fields,
        }
    )


def ticked(task: str, *runs: Run, failed: Run | None = None) -> dict[str, str | None]:
    found = checklist.of_task(task, runs, profile="cpu", short="cpu", parts=PARTS, failed=failed)  # type: ignore[arg-type]
    assert all(tick.done == (tick.evidence is not None) for tick in found)
    return {tick.name: tick.evidence for tick in found if tick.done}


OVERLAID = {"verl_source": "/x"}
PROVEN: list[tuple[str, Run, set[str]]] = [
    ("local", run(1, *WHOLE), {"green"}),
    ("local", run(1, *FULL), {"green", "full"}),
    ("local", run(1, "env", "ppo-mock"), set()),
    ("local", run(1, *WHOLE, settings={"rollout": "mock"}), set()),
    ("local", run(1, *FULL, settings={"checkpoint": "mock"}), {"green"}),
    ("local", run(1, *WHOLE, settings=OVERLAID), set()),
    ("local", run(1, "env", failed="ppo"), set()),
    ("local", run(1, "learn-1", "learn-2", "learn-3"), {"learns"}),
    ("local", run(1, *WHOLE, settings={"model": "/m"}), {"green", "own"}),
    ("local", run(1, "ppo-mock", "ppo", command=["verlock", "preflight", "x"]), {"green", "command"}),
    ("local", run(1, *WHOLE, profile="a100"), set()),
    ("verl", run(1, *WHOLE), {"before"}),
    ("verl", run(1, *FULL, settings=OVERLAID), {"after", "after-full"}),
    ("handoff", run(1, *WHOLE, rehearsal=True), {"rehearsed"}),
    ("handoff", run(1, *WHOLE, image=Image(manifest="m", config="c")), {"image"}),
]


@pytest.mark.parametrize(("task", "record", "names"), PROVEN)
def test_a_record_ticks_what_it_proves_and_no_more(task: str, record: Run, names: set[str]) -> None:
    assert set(ticked(task, record)) == names


@pytest.mark.parametrize("part", PARTS)
def test_a_record_of_another_state_is_no_tick(part: str) -> None:
    old = run(1, *WHOLE, parts={part: "other"})
    assert ticked("local", old) == {}
    (green, *_) = checklist.of_task("local", [old], profile="cpu", short="cpu", parts=PARTS)
    assert (green.done, green.earlier) == (False, "run-1")


FAILURE = Failure(failure_class="data", signature="chat-template", cause="row 3", fix="give a template")


def test_a_failure_is_ticked_by_what_came_after_it() -> None:
    before, failed = run(1, *FULL), run(2, "env", failed="ppo", failure=FAILURE)
    assert set(ticked("failure", before, failed, failed=failed)) == {"named"}
    again = run(3, "env", failed="ppo", failure=FAILURE)
    assert set(ticked("failure", before, failed, again, failed=failed)) == {"named", "reproduced"}
    mended = run(4, *WHOLE)
    assert set(ticked("failure", before, failed, again, mended, failed=failed)) == {
        "named",
        "reproduced",
        "rung",
        "whole",
    }


def advice(*runs: Run, task: str | None = None) -> tuple[str, str, str | None]:
    chosen = task or next_step.infer(runs)
    failed = next((one for one in reversed(runs) if one.status == "failed"), None)
    ticks = checklist.of_task(chosen, runs, profile="cpu", short="cpu", parts=PARTS, failed=failed)  # type: ignore[arg-type]
    return next_step.step(chosen, runs, ticks, profile="cpu")  # type: ignore[arg-type]


def test_without_a_record_the_first_is_to_climb() -> None:
    assert advice()[0] == "verlock climb --profile cpu"


def test_the_first_item_that_is_not_proven_is_next() -> None:
    assert advice(run(1, *WHOLE))[0] == "verlock climb --profile cpu --full"
    assert advice(run(1, *FULL))[0].endswith("--learn")
    assert advice(run(1, *WHOLE, settings=OVERLAID))[0] == "verlock climb --profile cpu"


def test_an_interrupted_run_is_run_again() -> None:
    cut = run(1, "env", status="interrupted", command=["verlock", "climb", "--data", "a b"])
    assert advice(cut)[0] == "verlock climb --data 'a b'"


def test_what_follows_a_failure_follows_from_what_is_known_of_it() -> None:
    def after(**changes: Any) -> str:
        return advice(run(1, "env", failed="ppo", failure=FAILURE.model_copy(update=changes)))[0]

    assert after() == "verlock replay runs/run-1 --anyway"
    assert after(signature="unknown") == "verlock localise runs/run-1"
    assert after(signature="hang") == "less runs/run-1/stacks.txt"
    for name in get_args(FailureClass):
        assert after(fix=None, failure_class=name).startswith("verlock ")


def test_a_task_that_is_done_leads_to_the_next() -> None:
    done = [run(n, *FULL, **f) for n, f in enumerate(({}, {"settings": {"model": "/m"}}), start=1)]
    done += [run(3, "learn-1"), run(4, "ppo", command=["verlock", "preflight"])]
    assert advice(*done, task="local")[0] == "verlock next --task handoff --profile a100"


def test_every_command_of_a_checklist_is_one_of_ours() -> None:
    for items in ITEMS.values():
        for item in items:
            assert item.command.split()[0] in {"verlock", "nox"}
            item.command.format(profile="p", short="s", run="r")


def test_it_reads_the_records_and_names_those_that_it_cannot(tmp_path: Path) -> None:
    record = RunRecord.create(tmp_path, profile="cpu", command=["verlock", "climb"])
    record.finish("passed", 0)
    (tmp_path / "20200101-broken").mkdir()
    (tmp_path / "20200101-broken" / "run.json").write_text("{")
    found = next_step.advise(tmp_path, task=None, profile=None)
    assert found.unreadable == ["20200101-broken"]
    assert found.task == "local"
    assert json.loads(found.model_dump_json())["command"] == "verlock climb --profile cpu"
