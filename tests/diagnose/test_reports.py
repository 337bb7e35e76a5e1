"""The known reports and logs, where this machine has them: the score, and the same answers once spoilt."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.diagnose.catalogue import Catalogue
from harness.diagnose.diagnosis import Diagnosis
from harness.diagnose.host import Host

ROOT = Path(__file__).parents[2]
FAILURES = ROOT.parent / "shared" / "failures"
if not FAILURES.is_dir():
    pytest.skip(
        "the reports are not part of this repository; tests/diagnose/logs are", allow_module_level=True
    )

EXPECTED: dict[str, dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("expected.yaml").read_text())
REPORTS = {
    report["id"]: report for report in map(json.loads, (FAILURES / "reports.jsonl").read_text().splitlines())
}
LOGS = sorted(path.name for path in (FAILURES / "logs").glob("*.log"))


def text_of(id_: str) -> str:
    """The run's log where there is one, else the error as it was reported."""
    log = EXPECTED[id_].get("log")
    return (FAILURES / "logs" / log).read_text(errors="replace") if log else str(REPORTS[id_]["error"])


def host_of(id_: str) -> Host:
    return Host.model_validate(EXPECTED[id_].get("host", {}))


def test_every_report_was_read_by_a_person(known: Catalogue) -> None:
    assert set(EXPECTED) == set(REPORTS)
    named = {row["signature"] for row in EXPECTED.values()} - {None}
    assert named <= {signature.id for signature in known.signatures}


def test_the_score(told: Callable[..., Diagnosis], capsys: pytest.CaptureFixture[str]) -> None:
    """Class: the report's own. Cause and fix: the signature that a person gave the report."""
    answers = {id_: told(text_of(id_), host_of(id_)) for id_ in REPORTS}
    classes = [id_ for id_, answer in answers.items() if answer.failure_class == REPORTS[id_]["class"]]
    causes = [id_ for id_, answer in answers.items() if answer.signature == EXPECTED[id_]["signature"]]
    scopes = [id_ for id_, answer in answers.items() if answer.scope == REPORTS[id_]["scope"]]
    with capsys.disabled():
        print(
            f"\n{len(REPORTS)} reports: class right in {len(classes)} ({len(classes) / len(REPORTS):.0%}),",
            end=" ",
        )
        print(f"cause and fix in {len(causes)} ({len(causes) / len(REPORTS):.0%}), scope in {len(scopes)}")
        print("  class wrong:", " ".join(sorted(set(REPORTS) - set(classes))))
        print("  cause wrong:", " ".join(sorted(set(REPORTS) - set(causes))))
    assert len(classes) >= 0.9 * len(REPORTS)
    assert len(causes) >= 0.8 * len(REPORTS)


@pytest.fixture(scope="module")
def whole(told: Callable[..., Diagnosis]) -> dict[str, str]:
    """The signature of each log and each report as they are."""
    logs = {name: told((FAILURES / "logs" / name).read_text(errors="replace")).signature for name in LOGS}
    return logs | {id_: told(report["error"], host_of(id_)).signature for id_, report in REPORTS.items()}


def test_the_same_answers_from_spoilt_logs(
    told: Callable[..., Diagnosis], whole: dict[str, str], spoil: Callable[[str], str]
) -> None:
    changed = {}
    for name in LOGS:
        answer = told(spoil((FAILURES / "logs" / name).read_text(errors="replace")))
        if answer.signature != whole[name]:
            changed[name] = (whole[name], answer.signature, answer.raised.text)
    assert not changed


def test_the_same_answers_from_spoilt_reports(
    told: Callable[..., Diagnosis], whole: dict[str, str], spoil: Callable[[str], str]
) -> None:
    changed = {}
    for id_, report in REPORTS.items():
        answer = told(spoil(report["error"]), host_of(id_))
        if answer.signature != whole[id_]:
            changed[id_] = (whole[id_], answer.signature, answer.raised.text)
    assert not changed
