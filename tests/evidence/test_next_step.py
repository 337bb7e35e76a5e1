"""What to run next follows from the records, and a tick has a record of this very state behind it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import pytest

from harness.errors import FailureClass
from harness.evidence import checklist, next_step, standing, words
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


OWN = ["verlock", "climb", "--json", "--reward", "r.py:f", "--to=ppo", "--", "+x={a: 1}"]
OWN_SETTINGS = {"reward": "r.py:f", "overrides": ["+x={a: 1}"], "first": "env", "last": "ppo"}


def own_failure(number: int = 1, **fields: Any) -> Run:
    return run(
        number,
        "env",
        failed="reward",
        **({"failure": FAILURE, "command": OWN, "settings": OWN_SETTINGS} | fields),
    )


def test_what_is_proposed_keeps_the_users_own_options() -> None:
    narrow = "verlock climb --reward r.py:f --from reward --to reward -- '+x={a: 1}'"
    assert advice(own_failure())[0] == narrow
    found = checklist.of_task(
        "failure", [own_failure()], profile="cpu", short="cpu", parts=PARTS, failed=own_failure()
    )
    assert {tick.name: tick.command for tick in found} == {
        "named": "verlock diagnose runs/run-1",
        "reproduced": "verlock replay runs/run-1",
        "rung": narrow,
        "whole": "verlock climb --reward r.py:f --to=ppo -- '+x={a: 1}'",
    }


@pytest.mark.parametrize(
    ("later", "stands"),
    [
        (run(2, *WHOLE, "reward", settings={"last": "ppo"}), True),
        (run(2, "reward", settings=OWN_SETTINGS | {"last": "reward"}), True),
        (run(2, "env", "reward", settings=OWN_SETTINGS | {"runs": "/r", "deadline": 9.0}), False),
    ],
    ids=["something else passes", "its rung alone passes", "the same command passes"],
)
def test_a_failure_stands_until_the_same_command_passes(later: Run, stands: bool) -> None:
    assert next_step.infer([own_failure(), later]) == ("failure" if stands else "local")
    assert next_step.infer([later, own_failure(3)]) == "failure", "what passed before answers nothing"


def test_after_its_rung_the_whole_command_is_next() -> None:
    narrowed = run(2, "reward", settings=OWN_SETTINGS | {"last": "reward"})
    command, why, rests_on = advice(own_failure(), narrowed)
    assert (command, rests_on) == ("verlock climb --reward r.py:f --to=ppo -- '+x={a: 1}'", "run-1")
    assert "reward passes now" in why


def test_a_replay_ticks_its_run_and_is_no_failure_of_its_own() -> None:
    failed, replayed = (
        own_failure(),
        own_failure(2, replays="run-1", command=["verlock", "climb", "--seed=2"]),
    )
    assert advice(failed, replayed)[2] == "run-1"
    assert ticked("failure", failed, replayed, failed=failed) == {"named": "run-1", "reproduced": "run-2"}
    other = FAILURE.model_copy(update={"signature": "disk-full"})
    assert "reproduced" not in ticked(
        "failure", failed, replayed.model_copy(update={"failure": other}), failed=failed
    )


def advice(*runs: Run, task: str | None = None) -> tuple[str, str, str | None]:
    chosen = task or next_step.infer(runs)
    failed = standing.newest(runs)
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
    assert "`verlock report runs/run-1`" in advice(cut)[1], "killed: nobody made its page"
    assert "report" not in advice(cut.model_copy(update={"ended": "2026"}))[1]


def test_what_follows_a_failure_follows_from_what_is_known_of_it() -> None:
    def after(**changes: Any) -> str:
        return advice(own_failure(failure=FAILURE.model_copy(update=changes)))[0]

    assert after(signature="unknown") == "verlock localise runs/run-1"
    assert after(signature="hang") == "less runs/run-1/stacks.txt"


LOOKS = {
    "config": "verlock climb --reward r.py:f --to=ppo --print-config -- '+x={a: 1}'",
    "data": "verlock data check /d.parquet --model /m",
    "model-logic": "verlock climb --reward r.py:f --from forward --to reward -- '+x={a: 1}'",
    "backend": "verlock doctor --profile cpu",
    "distributed": "verlock localise runs/run-1",
    "resource": "verlock plan memory cpu --model /m -- '+x={a: 1}'",
    "environment": "verlock doctor --profile cpu",
}


@pytest.mark.parametrize("name", get_args(FailureClass))
def test_a_class_without_a_fix_is_looked_into_with_the_runs_own_files(name: FailureClass) -> None:
    failure = FAILURE.model_copy(update={"fix": None, "failure_class": name})
    settings = OWN_SETTINGS | {"model": "/m", "data": "/d.parquet"}
    assert advice(own_failure(failure=failure, settings=settings))[0] == LOOKS[name]


@pytest.mark.parametrize(
    ("given", "narrowed"),
    [
        (["climb", "--full", "--from=env", "--seed", "2"], "climb --seed 2 --from ppo --to ppo"),
        (["climb", "--to", "ppo", "trainer.nnodes=1"], "climb trainer.nnodes=1 --from ppo --to ppo"),
        (["climb", "--", "--to=x"], "climb --from ppo --to ppo -- --to=x"),
        (["climb", "--learn"], "climb --learn"),
        (["preflight", "--from", "ppo", "--", "train.sh"], "preflight --from ppo -- train.sh"),
    ],
)
def test_a_command_is_narrowed_to_a_rung_where_it_has_some(given: list[str], narrowed: str) -> None:
    assert " ".join(words.between(run(1, command=["verlock", *given]), "ppo", "ppo")) == f"verlock {narrowed}"


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


def test_a_record_is_named_by_where_it_is(tmp_path: Path) -> None:
    runs = tmp_path / "my runs"
    record = RunRecord.create(runs, profile="cpu", command=["verlock", "climb"])
    record.rung_failed("ppo", FAILURE.model_copy(update={"signature": "unknown"}))
    record.finish("failed", 20)
    found = next_step.advise(runs, task=None, profile=None)
    assert found.command == f"verlock localise '{runs}'/{record.id}"
    assert found.checklist[1].command == f"verlock replay '{runs}'/{record.id}"
