"""The report: one page that needs nothing from elsewhere, for every way in which a run can end."""

from __future__ import annotations

import json
import math
import re
from datetime import datetime, timedelta
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from harness.evidence import events, report
from harness.evidence.model import Failure, Finding, Resources, Seen
from harness.evidence.plot import apart, line_plot
from harness.evidence.record import RunRecord


@pytest.fixture
def record(tmp_path: Path) -> RunRecord:
    return RunRecord.create(tmp_path / "runs", profile="cpu", command=["verlock", "climb"])


def test_a_full_run(record: RunRecord, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in record.environment().items():
        monkeypatch.setenv(name, value)
    record.rung_started("env")
    record.rung_passed("env", "all distributions match", details={"distributions": 214})
    lines = [{"step": n, "data": {"critic/score/mean": n / 10, "actor/grad_norm": None}} for n in range(1, 5)]
    (record.folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (record.folder / "precision.json").write_text('{"bf16": 0}')
    events.emit("patch", patch="gloo_backend", outcome="applied")
    events.emit("patch_acted", patch="gloo_backend", where="/env/site-packages/verl/utils/distributed.py:93")
    record.update(
        versions={"torch": "2.13.0+cpu"},
        fingerprint={"environment": "ab" * 32},
        resources=Resources(
            peak_pss_bytes=3 << 30,
            samples=4,
            peak_by_title={"raylet": 1 << 20},
            processes=[Seen(pid=1, title="raylet")],
        ),
    )
    record.finish("passed", 0)
    page = report.write(record.folder).read_text()
    assert "applied: 1" in page
    assert ">verl/utils/distributed.py:93<" in page
    for text in (
        "Passed",
        "all distributions match",
        "Mean reward",
        "gloo_backend",
        "3.00 GiB",
        "2.13.0+cpu",
        "ab" * 32,
        "bf16",
    ):
        assert text in page
    assert "Actor gradient norm" not in page  # Only nulls: nothing to draw.
    assert page.count("<svg") == 1


def test_it_loads_nothing_and_runs_nothing(record: RunRecord) -> None:
    page = report.render(record.folder)
    assert not re.search(r"https?://|<script|<link|src=|@import|url\(", page)


def test_text_from_a_log_is_not_markup(record: RunRecord) -> None:
    record.rung_started("ppo")
    record.rung_failed(
        "ppo", Failure(failure_class="backend", signature="<b>", cause="<script>alert(1)</script>")
    )
    record.finish("failed", 22)
    page = report.render(record.folder)
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert "exit code 22" in page


def test_a_killed_run_says_so(record: RunRecord) -> None:
    record.rung_started("env")
    page = report.render(record.folder)
    assert "Interrupted" in page
    assert "no end was written: killed, or still running" in page


def test_how_long_a_killed_run_went_is_told_by_its_last_event(record: RunRecord) -> None:
    """Its record was written when the rung began."""
    later = datetime.fromisoformat(record.run.started) + timedelta(seconds=21.4)
    event = {"time": later.isoformat(), "pid": 1, "role": "harness", "kind": "host"}
    with (record.folder / "events.jsonl").open("a") as log:
        log.write(json.dumps(event) + "\n")
    assert "after 21.4 s" in report.render(record.folder)


def test_a_run_without_any_rung(record: RunRecord) -> None:
    record.finish("failed", 10)
    assert "No rung was started" in report.render(record.folder)


@pytest.mark.parametrize(
    "points",
    [
        [(1, 0.5)],
        [(1, 2.0), (2, 2.0)],
        [(1, float("nan")), (2, 1e-9), (3, float("inf")), (4, 2e-9)],
        [(step, step**2.0) for step in range(1, 200)],
    ],
)
def test_plots_are_well_formed(points: list[tuple[int, float]]) -> None:
    drawn = ET.fromstring(line_plot(points, name='a < "b"'))
    finite = [value for _, value in points if math.isfinite(value)]
    assert len(drawn.findall("g")) == len(finite)
    for circle in drawn.iter("circle"):
        assert 0 <= float(circle.attrib["cx"]) <= 300
        assert 0 <= float(circle.attrib["cy"]) <= 130


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        ([5.54121, 5.54132], ["5.5412", "5.5413"]),
        ([396.1, 396.3], ["396.1", "396.3"]),
        ([1.0, 2.5], ["1", "2.5"]),
        ([7.0, 7.0], ["7", "7"]),
        ([1.0, math.nextafter(1.0, 2.0)], ["1", "1.0000000000000002"]),
    ],
)
def test_the_ends_of_an_axis_are_told_apart(values: list[float], labels: list[str]) -> None:
    assert apart(values) == labels
    drawn = ET.fromstring(line_plot(list(enumerate(values)), name="n"))
    shown = [text.text for text in drawn.iter("text") if not (text.text or "").startswith("step")]
    assert set(shown) == set(labels)


@pytest.mark.parametrize("measure", ["private", "resident", None])
def test_the_page_says_what_the_memory_of_a_process_is(
    record: RunRecord, monkeypatch: pytest.MonkeyPatch, measure: str | None
) -> None:
    for name, value in record.environment().items():
        monkeypatch.setenv(name, value)
    said = {"measure": measure} if measure else {}
    events.emit("memory", rung="ppo", step=1, bytes={"x (pid 7)": 1 << 30}, **said)
    words = {"private": "has alone", "resident": "all that is resident", None: "shares with its parent"}
    page = report.render(record.folder)
    assert [key for key, text in words.items() if text in page] == [measure]


def test_nothing_to_plot() -> None:
    assert line_plot([(1, float("nan"))], name="x") == ""


def test_health_is_drawn_step_by_step(record: RunRecord, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in record.environment().items():
        monkeypatch.setenv(name, value)
    lines = [
        {"step": n, "data": {f"response_length/{k}": n * v for k, v in (("mean", 4), ("min", 2), ("max", 6))}}
        for n in (1, 2, 3)
    ]
    (record.folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for kind in ("samples", "validation-samples"):
        (record.folder / kind).mkdir()
        for n in (1, 2):
            rows = [{"output": "a" * k, "score": k / n} for k in (1, 2, 3)]
            (record.folder / kind / f"{n}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for step in (1, 2, 3):
        events.emit("memory", rung="ppo", step=step, bytes={"ray::WorkerDict (pid 7)": step << 30})
    record.update(
        findings=[
            Finding(
                id="memory-grows", failure_class="resource", rung="ppo", step=2, what="<b>", why="w", todo="t"
            ),
            Finding(id="memory-low", failure_class="resource", rung="ppo", what="x", why="w", todo="t"),
        ]
    )
    page = report.render(record.folder)
    for text in (
        "Response length (tokens",
        "Deviation of rewards, training",
        "Mean reward, validation",
        "ray::WorkerDict (pid 7)",
        "Not well, though verl went on",
        "from step 2",
        "&lt;b&gt;",
    ):
        assert text in page
    assert page.count('class="band"') == 3, "lengths in tokens, and in characters twice"


def test_a_band_lies_within_the_plot() -> None:
    svg = ET.fromstring(line_plot([(1, 5.0), (2, 6.0)], name="n", band=[(1, 0.0, 10.0), (2, 4.0, math.nan)]))
    (shade,) = [element for element in svg if element.get("class") == "band"]
    points = [tuple(map(float, point.split(","))) for point in (shade.get("points") or "").split()]
    assert len(points) == 2, "a step whose band is not known has none"
    assert all(0 <= x <= 300 and 0 <= y <= 130 for x, y in points)
