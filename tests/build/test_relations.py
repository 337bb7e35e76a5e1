"""What must hold in and between the committed locks, and that each check finds a planted violation."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.build import lockfile
from harness.build.lock import folder
from harness.build.lockfile import Pin
from harness.build.relations import INSIDE, Locked, between, within
from harness.profiles import load, names
from harness.profiles.model import Profile


def committed() -> list[Locked]:
    """All locks of all profiles, as they are in the repository."""
    locks = []
    for profile in map(load, names()):
        for target in profile.software.targets:
            text = (folder(profile) / target.file).read_text(encoding="utf-8")
            locks.append(Locked(profile=profile, target=target, pins=lockfile.parse(text, file=target.file)))
    return locks


LOCKS = {f"{lock.profile.short}-{lock.target.name}": lock for lock in committed()}


def plant(lock: Locked, name: str, version: str) -> Locked:
    """The lock with one pin added or moved."""
    return replace(
        lock, pins={**lock.pins, name: Pin(name=name, version=version, hashes=("0" * 64,), line=1, text="")}
    )


@pytest.mark.parametrize("name", LOCKS)
def test_committed_locks_keep_their_profile(name: str) -> None:
    assert within(LOCKS[name]) == []


def test_committed_locks_agree() -> None:
    assert between(LOCKS.values()) == []


@pytest.mark.parametrize(
    ("name", "package"),
    [
        ("cpu-linux", "nvidia-cublas-cu12"),
        ("cpu-linux", "triton"),
        ("mac-linux", "nvidia-nccl-cu13"),
        ("mac-macos", "triton"),
        ("p40-linux", "vllm"),
        ("p40-linux", "flash-attn"),
    ],
)
def test_planted_package_is_found(name: str, package: str) -> None:
    (problem,) = within(plant(LOCKS[name], package, "1"))
    assert package in problem.what
    assert problem.why


@pytest.mark.parametrize("package", INSIDE)
def test_missing_core_package_is_found(package: str) -> None:
    lock = LOCKS["cpu-linux"]
    pins = {name: pin for name, pin in lock.pins.items() if name != package}
    assert [problem.what.split()[0] for problem in within(replace(lock, pins=pins))] == [package]


@pytest.mark.parametrize("package", ["verl", "torch", "transformers", "ray", "tensordict"])
def test_pin_that_is_not_the_profiles(package: str) -> None:
    (problem,) = within(plant(LOCKS["cpu-linux"], package, "0.0.1"))
    assert problem.what.startswith(f"{package} is 0.0.1")


def test_shared_package_with_two_versions() -> None:
    locks = [plant(lock, "pandas", "1.0") if key == "p40-linux" else lock for key, lock in LOCKS.items()]
    (problem,) = between(locks)
    assert "pandas is 1.0 here" in problem.what
    assert "software.differs" in str(problem.todo)


def test_reason_without_difference() -> None:
    lock = LOCKS["p40-linux"]
    document = lock.profile.model_dump()
    document["software"]["differs"]["pandas"] = "once upon a time"
    changed = replace(lock, profile=Profile.model_validate(document))
    problems = between([*(other for key, other in LOCKS.items() if key != "p40-linux"), changed])
    assert [problem.where for problem in problems] == ["profiles/p40-sm61.yaml:software.differs.pandas"]
