"""The arithmetic of the bench: ratios by round, aims that can be missed, and what counts as slower."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from document import Document, table
from measure import Aim, Case, Result, judged, run, slower


def case(unit: str = "s", **changed: object) -> Case:
    fields = {"id": "x", "what": "a thing", "unit": unit, "sides": {"ours": float, "theirs": float}}
    return Case.model_validate({**fields, **changed})


def test_the_sides_run_in_turns_and_every_second_round_backwards() -> None:
    order: list[str] = []

    def side(name: str, values: Iterator[float]) -> object:
        return lambda: (order.append(name), next(values))[1]

    sides = {"ours": side("ours", iter([1, 2, 4])), "theirs": side("theirs", iter([4, 4, 4]))}
    result = run(case(sides=sides), print)
    assert order == ["ours", "theirs", "theirs", "ours", "ours", "theirs"]
    (ratio,) = result.ratios
    assert (ratio.against, ratio.median, ratio.low, ratio.high) == ("theirs", 2, 1, 4)


def test_of_a_throughput_more_is_better() -> None:
    (ratio,) = judged(case("MB/s"), {"ours": [200], "theirs": [100]}).ratios
    assert ratio.median == 2


@pytest.mark.parametrize(
    ("aim", "met"),
    [
        (Aim(at_least=2, against="theirs"), True),
        (Aim(at_least=2.1, against="theirs"), False),
        (Aim(at_most=5), True),
        (Aim(at_most=4.9), False),
    ],
)
def test_an_aim_is_met_or_missed(aim: Aim, met: bool) -> None:
    result = judged(case(aim=aim), {"ours": [5, 5, 6], "theirs": [10, 10, 12]})
    assert result.met is met
    assert ("met" if met else "**missed**") in table(document(result))


def result(*ours: float) -> Result:
    return judged(case(), {"ours": list(ours), "theirs": [10.0] * len(ours)})


def test_slower_is_what_the_spread_cannot_explain() -> None:
    old = result(1.0, 1.2, 1.1)
    (told,) = slower([old], [result(1.3, 1.4, 1.5)])
    assert "against theirs it was 9.091 times as good" in told
    assert list(slower([old], [result(1.15, 1.4, 1.5)])) == []
    assert list(slower([old], [result(0.5, 0.6, 0.7)])) == []
    assert list(slower([], [old])) == []


def document(*results: Result) -> Document:
    machine = {"cores": 2, "memory_gib": 8.0, "processor": "p", "system": "s", "python": "3.11"}
    return Document(
        written="2026-11-30T00:00:00+00:00",
        commit="c" * 40,
        dirty=False,
        machine=machine,
        versions={"verl": "0.9.1"},
        load=[0.1, 0.1, 0.1],
        results=list(results),
    )


def test_the_document_survives_being_written_and_read() -> None:
    one = document(result(1.0, 2.0))
    assert Document.model_validate_json(one.model_dump_json()) == one
