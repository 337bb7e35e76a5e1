"""A profile with another verl: what changes with it, and what is refused."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from harness.errors import ProfileError, UnknownVerlError
from harness.fingerprint import lock
from harness.profiles import load, releases, root
from harness.profiles.releases import at, named, package

CPU = load("cpu")
OLDER = [release.verl for release in CPU.software.also]


def test_two_older_releases_have_a_lock_each() -> None:
    assert OLDER == ["0.8.0", "0.7.1"]
    folders = {lock.home(load(name)) for name in releases.names(CPU)}
    assert len(folders) == 3
    for folder in folders:
        assert (folder / "requirements.lock").is_file()
        assert (folder / "build.lock").is_file()


@pytest.mark.parametrize("verl", OLDER)
def test_the_lock_is_of_that_verl(verl: str) -> None:
    profile = load(named("cpu", verl))
    pins = lock.pins(profile)
    software = profile.software
    assert pins["verl"] == verl
    assert pins["transformers"] == software.transformers
    assert pins["numpy"].startswith("1."), "verl below 0.9 asks for numpy below 2"
    assert "transferqueue" not in pins
    assert pins["einops"]


@pytest.mark.parametrize("verl", OLDER)
def test_machine_contract_and_policy_stay(verl: str) -> None:
    profile = at(CPU, verl)
    assert profile.name == f"cpu@{verl}"
    assert (profile.stem, profile.home) == ("cpu", f"cpu/verl-{verl}")
    same = ("hardware", "numerics", "run", "image", "handoff")
    assert {key: getattr(profile, key) for key in same} == {key: getattr(CPU, key) for key in same}


def test_its_own_verl_is_the_profile_itself() -> None:
    assert at(CPU, CPU.software.verl) is CPU
    assert load(named("cpu", CPU.software.verl)) == CPU
    assert named("cpu", None) == "cpu"
    assert named("cpu@0.7.1", "0.8.0") == "cpu@0.8.0"


@pytest.mark.parametrize("verl", ["0.5.0", "0.8", "", "latest", "0.8.0 "])
def test_an_unknown_verl_is_refused_with_the_known_ones(verl: str) -> None:
    with pytest.raises(UnknownVerlError) as caught:
        load(named("cpu", verl))
    assert caught.value.exit_code == 11
    assert "0.9.1, 0.8.0, 0.7.1" in str(caught.value)


def test_a_profile_without_others_says_so() -> None:
    with pytest.raises(UnknownVerlError, match=r"has locks for 0\.9\.1\n"):
        load("p40@0.8.0")


@pytest.mark.parametrize(
    ("requirement", "name"),
    [("TransferQueue>=0.1.10", "transferqueue"), ("fastapi", "fastapi"), ("ray[default]==2", "ray")],
)
def test_the_package_of_a_requirement(requirement: str, name: str) -> None:
    assert package(requirement) == name


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("- verl: 0.7.1", "- verl: 0.8.0", "verl 0.8.0 is named twice"),
        ("- verl: 0.7.1", "- verl: 0.9.1", "verl 0.9.1 is named twice"),
        ("without: [TransferQueue]", "without: [TransferQ]", "TransferQ is none of software.requirements"),
    ],
)
def test_a_contradiction_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str, said: str
) -> None:
    shutil.copytree(root() / "profiles", tmp_path / "profiles")
    monkeypatch.setenv("VERLOCK_ROOT", str(tmp_path))
    path = tmp_path / "profiles" / "cpu.yaml"
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(ProfileError, match=said) as caught:
        load("cpu")
    assert "profiles/cpu.yaml:" in str(caught.value)
