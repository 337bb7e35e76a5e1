"""Modules to distributions, distributions to those who asked for them."""

from __future__ import annotations

import pytest

from harness.ladder.deps.graph import PROFILE, Installed, judge, owners, parents, path


def one(name: str, *requires: str, modules: tuple[str, ...] = (), size: int = 1) -> Installed:
    return Installed(
        name=name, version="1", requires=requires, modules=frozenset(modules or (name,)), size=size
    )


WORLD = {
    found.name: found
    for found in (
        one(
            "trainer",
            "numbers>=1",
            "tracker",
            'windows-only; sys_platform == "win32"',
            'server; extra == "serve"',
        ),
        one("numbers", "lowest"),
        one("tracker", "lowest", "cloud[storage]"),
        one("cloud", 'store; extra == "storage"', modules=("google.cloud",)),
        one("buffers", modules=("google.protobuf",)),
        one("lowest"),
        one("store"),
        one("server"),
        one("windows-only"),
        one("stray"),
    )
}


def test_requirements_are_followed_with_extras_and_markers() -> None:
    asked = parents(WORLD, ["trainer"])
    assert asked["lowest"] == {"numbers", "tracker"}
    assert asked["store"] == {"cloud"}
    assert "server" not in asked
    assert "windows-only" not in asked
    assert "server" in parents(WORLD, ["trainer[serve]"])
    assert "stray" not in asked


def test_the_shortest_way_from_the_profile() -> None:
    asked = parents(WORLD, ["trainer", "tracker"])
    assert path("store", asked) == (PROFILE, "tracker", "cloud", "store")
    assert path("trainer", asked) == (PROFILE, "trainer")
    assert path("stray", asked) == ()


@pytest.mark.parametrize(
    ("modules", "names"),
    [
        ({"numbers.core", "sys", "harness.cli"}, {"numbers"}),
        ({"google"}, set()),  # shared: the first part alone says nothing
        ({"google.protobuf"}, {"buffers"}),
        ({"google.cloud", "google.auth"}, {"cloud"}),
    ],
)
def test_a_module_belongs_to_its_distribution(modules: set[str], names: set[str]) -> None:
    assert owners(WORLD, modules) == names


def test_each_package_has_the_first_rung_that_imports_it_or_who_asked() -> None:
    imported = {"start": {"lowest"}, "env": {"numbers", "lowest"}, "ppo": {"trainer"}}
    found = {needed.name: needed for needed in judge(WORLD, imported, ["trainer"])}
    assert {name: needed.rung for name, needed in found.items() if needed.rung} == {
        "lowest": "start",
        "numbers": "env",
        "trainer": "ppo",
    }
    idle = found["tracker"]
    assert (idle.rung, idle.asked_by, idle.path) == (None, ("trainer",), (PROFILE, "trainer", "tracker"))


def test_a_circle_of_requirements_ends() -> None:
    circle = {"a": one("a", "b"), "b": one("b", "a")}
    assert parents(circle, ["a"]) == {"a": {PROFILE, "b"}, "b": {"a"}}
    assert path("c", {"c": {"d"}, "d": {"c"}}) == ()
