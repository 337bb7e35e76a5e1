"""The first place where two runs part is named; what is new in each run is no difference."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.evidence import outcome
from harness.evidence.model import Failure
from harness.evidence.record import RunRecord

FAILURE = Failure(failure_class="data", signature="missing-key", cause="judge.py:7: KeyError: 'answer'")


def made(runs: Path, **changes: Any) -> Path:
    """A record of four rungs with two trainers' metrics; ``changes`` are what differs."""
    record = RunRecord.create(runs, profile="cpu", command=["verlock", "climb"])
    record.rung_passed(
        "env", "installed", details={"check_seconds": 1.5, "patches": changes.get("patches", {})}
    )
    details = {
        "actor": {"loss": changes.get("loss", 0.25)},
        "scores": [0.5, 1],
        "seconds": record.run.seconds,
    }
    record.rung_passed("forward", "losses", details=details)
    for name, place in (("ppo-mock", record.folder / "ppo-mock"), ("ppo", record.folder)):
        if changes.get("failure") and name == changes.get("at", "ppo"):
            record.rung_failed(name, changes["failure"])
            record.finish("failed", changes.get("code", 22))
            return record.folder
        place.mkdir(exist_ok=True)
        value = changes.get(name, 1.0)
        rows = [
            {"step": n, "data": {"a/loss": value * n, "perf/time": record.run.seconds}} for n in (1, 2, 3)
        ]
        if "at_step_3" in changes and name == "ppo":
            rows[2]["data"]["z/kl"] = changes["at_step_3"]  # type: ignore[index]
        (place / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        record.rung_passed(
            name, "trained", details={"timeline": {"x 77": 1.0}, "reward_mean": [changes.get("reward", 0.5)]}
        )
    record.finish("passed", 0)
    return record.folder


def part(a: Path, b: Path) -> outcome.Parting | None:
    return outcome.parting(outcome.read(a), outcome.read(b))


def test_two_runs_of_the_same_do_not_part(tmp_path: Path) -> None:
    assert part(made(tmp_path), made(tmp_path, patches={"x": "applied"})) is None
    assert part(made(tmp_path, failure=FAILURE), made(tmp_path, failure=FAILURE)) is None


LEAST = 1.0000000000000002
CASES: list[tuple[dict[str, Any], dict[str, Any], tuple[Any, ...]]] = [
    ({}, {"loss": 0.2500000000000001}, ("forward", "measured", "actor.loss", None)),
    ({}, {"ppo-mock": LEAST}, ("ppo-mock", "metric", "a/loss", 1)),
    ({}, {"reward": 0.7}, ("ppo-mock", "measured", "reward_mean.0", None)),
    ({"at_step_3": 0.1}, {"at_step_3": 0.2}, ("ppo", "metric", "z/kl", 3)),
    ({}, {"at_step_3": 0.2}, ("ppo", "metric", "z/kl", 3)),
    ({"at_step_3": 0.0}, {"at_step_3": -0.0}, ("ppo", "metric", "z/kl", 3)),
    ({}, {"failure": FAILURE}, ("ppo", "verdict", "status", None)),
    ({}, {"failure": FAILURE, "at": "ppo-mock"}, ("ppo-mock", "verdict", "status", None)),
    (
        {"failure": FAILURE},
        {"failure": FAILURE.model_copy(update={"signature": "other"})},
        ("ppo", "failure", "signature", None),
    ),
    (
        {"failure": FAILURE},
        {"failure": FAILURE.model_copy(update={"cause": "judge.py:7: KeyError: 'text'"})},
        ("ppo", "failure", "cause", None),
    ),
    ({"failure": FAILURE}, {"failure": FAILURE, "code": 20}, ("ppo", "exit code", "exit_code", None)),
]


@pytest.mark.parametrize(("a", "b", "expected"), CASES)
def test_where_they_part(
    tmp_path: Path, a: dict[str, Any], b: dict[str, Any], expected: tuple[Any, ...]
) -> None:
    found = part(made(tmp_path, **a), made(tmp_path, **b))
    assert found is not None
    assert (found.rung, found.kind, found.key, found.step) == expected
    assert found.rung in found.line()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            "/tmp/a/20261130-154501-219-770d/output.log: pid 17",
            "/x/20261201-000000-001-abcd/output.log: pid 9",
        ),
        ("no answer at 127.0.0.1:4711 after 3.5 s", "no answer at 127.0.0.1:80 after 12 s"),
        ("<Actor object at 0x7f00aa>", "<Actor object at 0x12>"),
    ],
)
def test_what_is_new_in_each_run_is_no_other_cause(one: str, other: str) -> None:
    causes = [
        outcome.cause(Failure(failure_class="data", signature="s", cause=text)) for text in (one, other)
    ]
    assert causes[0] == causes[1]
    assert causes[0] != outcome.cause(Failure(failure_class="data", signature="s", cause="else"))
