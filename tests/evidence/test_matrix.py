"""The compatibility matrix: what a climb printed becomes a row, and a reason is never lost."""

from __future__ import annotations

from typing import Any

import pytest

from harness.evidence.matrix import Matrix, Row, markdown, row, table

RUNGS = ("env", "forward", "ppo")
LOCK = {"verl": "0.8.0", "file": "docker/rendered/cpu/verl-0.8.0/requirements.lock", "sha256": "0" * 64}


def rung(name: str, status: str = "passed", **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "status": status,
        "seconds": 1.5,
        "verified": f"{name} holds",
        "details": {},
        **more,
    }


def record(*rungs: dict[str, Any], **more: Any) -> dict[str, Any]:
    versions = {"verl": "0.8.0", "torch": "2.13.0+cpu", "numpy": "1.26.4"}
    return {"rungs": list(rungs), "settings": {"use_v1": False}, "versions": versions, **more}


def made(*rows: Row) -> Matrix:
    return Matrix(profile="cpu", command="nox -s compat", commit="c" * 40, rungs=RUNGS, rows=rows)


PASSED = row(
    "0.8.0",
    RUNGS,
    record(rung("env", details={"patches": {"cpu-device": "applied"}}), rung("forward"), rung("ppo")),
    0,
    LOCK,
)
CAUSE = {"failure": {"cause": "verl's value loss is 0.61,\nbut must be 0.62"}}
FAILED = row("0.8.0", RUNGS, record(rung("env"), rung("forward", "failed"), **CAUSE), 20, LOCK)


def test_a_climb_that_passed() -> None:
    assert PASSED.passed
    assert [cell.verdict for cell in PASSED.cells.values()] == ["passed"] * 3
    assert PASSED.cells["ppo"].told == "ppo holds"
    assert PASSED.patches == ("cpu-device",)
    assert PASSED.versions == {"torch": "2.13.0+cpu", "numpy": "1.26.4"}
    assert PASSED.trainer == "v0"


def test_one_that_failed_names_the_reason_and_what_it_did_not_reach() -> None:
    assert not FAILED.passed
    assert [cell.verdict for cell in FAILED.cells.values()] == ["passed", "failed", "not reached"]
    assert FAILED.cells["forward"].told == "verl's value loss is 0.61, but must be 0.62"


@pytest.mark.parametrize(
    ("document", "code", "told"),
    [
        ({"error": {"problems": [{"what": "there is no lock"}]}}, 12, "there is no lock"),
        ({}, 1, "it printed no document"),
    ],
)
def test_one_that_did_not_begin(document: dict[str, Any], code: int, told: str) -> None:
    """No record at all: the first rung carries the reason, so that no row looks as if nothing was asked."""
    found = row("0.8.0", RUNGS, document, code, LOCK)
    assert [cell.verdict for cell in found.cells.values()] == ["failed", "not reached", "not reached"]
    assert found.cells["env"].told == told
    assert not found.passed


def test_an_exit_code_of_its_own_is_no_pass() -> None:
    """A planted lie: every rung says passed, and the process ended with another code."""
    lying = row("0.8.0", RUNGS, record(*map(rung, RUNGS)), 13, LOCK)
    assert not lying.passed


def test_the_table() -> None:
    lines = table(made(PASSED, FAILED))
    assert lines == [
        "| verl | trainer | env | forward | ppo |",
        "|---|---|---|---|---|",
        "| 0.8.0 | v0 | passed | passed | passed |",
        "| 0.8.0 | v0 | passed | failed | not reached |",
    ]


def test_the_page_has_reasons_packages_and_locks() -> None:
    text = markdown(made(PASSED, FAILED))
    assert "- 0.8.0, forward: verl's value loss is 0.61, but must be 0.62" in text
    assert f"| 0.8.0 | torch 2.13.0+cpu, numpy 1.26.4 | cpu-device | {LOCK['file']} |" in text
    assert Matrix.model_validate_json(made(FAILED).model_dump_json()) == made(FAILED)
