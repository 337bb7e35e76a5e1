"""What was expected against what was found: every difference is a problem that says what to do."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import Problem
from harness.fingerprint import compare
from harness.fingerprint.report import differences

LOCKED = {"ray": "2.59.0", "torch": "2.13.0+cpu", "verl": "0.9.1"}


def said(problems: Iterable[Problem]) -> list[str]:
    found = list(problems)
    assert all(problem.todo for problem in found)
    return [problem.what for problem in found]


VERSIONS: list[tuple[dict[str, str], list[str]]] = [
    ({}, []),
    ({"ray": "2.60.0"}, ["ray is version 2.60.0, the lock says 2.59.0"]),
    ({"torch": "2.13.0"}, ["torch is version 2.13.0, the lock says 2.13.0+cpu"]),
    ({"trl": "1.0"}, ["trl 1.0 is installed, and the lock does not name it"]),
    ({"verlock": "9"}, []),
    ({"pytest": "8"}, []),
    ({"pytest": "7"}, ["pytest is version 7, the lock says 8"]),
]


@pytest.mark.parametrize(("changed", "expected"), VERSIONS)
def test_versions(changed: dict[str, str], expected: list[str]) -> None:
    assert said(compare.versions(LOCKED, LOCKED | changed, tools={"pytest": "8"})) == expected


def test_a_missing_distribution_and_one_that_is_not_looked_at() -> None:
    without_verl = {name: LOCKED[name] for name in ("ray", "torch")}
    assert said(compare.versions(LOCKED, without_verl, tools={})) == [
        "verl is not installed, the lock says 0.9.1"
    ]
    assert said(compare.versions(LOCKED, without_verl, tools={}, without=frozenset({"verl"}))) == []


names = st.dictionaries(st.sampled_from("abcdef"), st.sampled_from("123"))


@given(names, names)
def test_no_problem_means_equal(expected: dict[str, str], found: dict[str, str]) -> None:
    assert (not said(compare.versions(expected, found, tools={}))) == (expected == found)
    assert (not said(compare.contents(expected, found))) == (expected == found)
    assert (not said(compare.parts(expected, found))) == (expected == found)


def test_many_files_are_counted_not_listed() -> None:
    found = list(compare.files("torch", "/site", [f"f{n}" for n in range(8)]))
    assert [problem.where for problem in found[:2]] == ["/site/f0", "/site/f1"]
    assert (len(found), found[-1].what) == (6, "torch: 3 more files differ")


@pytest.mark.parametrize(
    ("origin", "wrong"),
    [("/site/torch/__init__.py", False), ("/site2/torch/__init__.py", True), (None, True)],
)
def test_a_module_from_elsewhere(origin: str | None, wrong: bool) -> None:
    assert bool(said(compare.places("/site", {"torch": origin}))) is wrong


HERE: dict[str, Any] = {
    "environment": "e" * 64,
    "image": "sha256:" + "1" * 64,
    "parts": {"profile": "p", "lock": "l", "harness": "h"},
    "contents": {"torch": "t"},
}
WANTED: list[tuple[Any, list[str]]] = [
    ("e" * 64, []),
    ("1" * 64, []),
    ("f" * 64, ["this is not the environment or image " + "f" * 64]),
    (HERE, []),
    ({"parts": HERE["parts"]}, []),
    (HERE | {"parts": HERE["parts"] | {"lock": "m"}}, ["the lock here is not that of the driver"]),
    (HERE | {"image": "sha256:2"}, ["this is not the image that was expected"]),
    (
        HERE | {"contents": {"torch": "u"}},
        ["torch here is another build than the driver's, or its RECORD was altered"],
    ),
]


@pytest.mark.parametrize(("wanted", "expected"), WANTED)
def test_a_node_that_differs_says_in_what(wanted: Any, expected: list[str]) -> None:
    assert said(differences(wanted, HERE)) == expected
