"""Reading verl's own metrics file, and telling two runs apart by a single bit."""

from __future__ import annotations

import math
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import RecordError
from harness.evidence import metrics
from harness.evidence.metrics import Step, difference

FLOATS = st.floats(allow_nan=False)


def step(number: int, **values: metrics.Value) -> Step:
    return Step(step=number, values=values)


def test_reading(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(
        '{"step":2,"data":{"a":1.5}}\n{"step":1,"data":{"a":null}}\n{"step":2,"data":{"b":2}}\n{"step":3,"da'
    )
    steps = metrics.read(path)
    assert steps == [step(1, a=None), step(2, a=1.5, b=2)]
    assert metrics.column(steps, "a") == [(2, 1.5)]
    assert metrics.keys(steps) == ["a", "b"]


@pytest.mark.parametrize("line", ["{", "[]", '{"step":1}', '{"step":1,"data":3}'])
def test_a_line_that_is_not_verls(tmp_path: Path, line: str) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step":1,"data":{}}\n' + line + "\n")
    with pytest.raises(RecordError, match=r"metrics.jsonl:2"):
        metrics.read(path)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="cannot read the metrics"):
        metrics.read(tmp_path / "metrics.jsonl")


def test_what_verls_logger_writes_comes_back_bit_for_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracking = pytest.importorskip("verl.utils.tracking", reason="verl comes with the lock")
    path = tmp_path / "metrics.jsonl"
    monkeypatch.setenv("VERL_FILE_LOGGER_PATH", str(path))
    logger = tracking.FileLogger("project", "experiment")
    values = {"a": 0.1 + 0.2, "b": 3.7e-9, "c": -0.0, "d": 7, "e": math.nextafter(1.0, 2.0)}
    logger.log(values, 1)
    logger.finish()
    assert difference(metrics.read(path), [step(1, **values)]) is None


def test_times_are_ignored() -> None:
    a, b = (
        [Step(step=1, values={"timing_s/gen": 1.0, "x": 1.0})],
        [Step(step=1, values={"timing_s/gen": 2.0, "x": 1.0})],
    )
    assert difference(a, b) is None
    found = difference(a, b, ignore=())
    assert found is not None
    assert found.key == "timing_s/gen"


def test_absent_steps_and_keys() -> None:
    found = difference([step(1, a=1.0), step(2, a=1.0)], [step(1, a=1.0)])
    assert found == metrics.Difference(step=2, key="a", a=1.0, b=metrics.ABSENT)
    found = difference([step(1, a=1.0)], [step(1, a=1.0, b=None)])
    assert found == metrics.Difference(step=1, key="b", a=metrics.ABSENT, b=None)


@pytest.mark.parametrize(("a", "b"), [(0.0, -0.0), (1, 1.0), (True, 1), (None, 0.0), ("absent", None)])
def test_values_that_python_or_a_reader_might_take_for_equal(a: metrics.Value, b: metrics.Value) -> None:
    assert difference([step(1, x=a)], [step(1, x=b)]) is not None


@given(FLOATS, st.integers(0, 63))
def test_any_flipped_bit_is_seen(value: float, bit: int) -> None:
    (bits,) = struct.unpack("<Q", struct.pack("<d", value))
    (other,) = struct.unpack("<d", struct.pack("<Q", bits ^ (1 << bit)))
    assert difference([step(1, x=value)], [step(1, x=value)]) is None
    assert difference([step(1, x=value)], [step(1, x=other)]) is not None


def test_the_first_difference_is_by_step_then_key() -> None:
    a, b = [step(1, m=0.0, z=0.0), step(2, a=0.0)], [step(1, m=0.0, z=1.0), step(2, a=1.0)]
    found = difference(a, b)
    assert found == metrics.Difference(step=1, key="z", a=0.0, b=1.0)
