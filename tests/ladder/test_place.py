"""Where a climb runs, for machines that are not here: what ``nvidia-smi`` says is text, the rest is pure."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.errors import WrongMachineError
from harness.ladder import place
from harness.ladder.place import Gpu, Place, Sight
from harness.profiles import load

ROOT = Path(__file__).parents[2]
P40 = Gpu(name="Tesla P40", capability="6.1")
A100 = Gpu(name="NVIDIA A100-SXM4-40GB", capability="8.0")
H200 = Gpu(name="NVIDIA H200", capability="9.0")


@pytest.mark.parametrize(
    ("text", "cards"),
    [
        ("Tesla P40, 6.1\n", (P40,)),
        ("NVIDIA A100-SXM4-40GB, 8.0\nTesla P40, 6.1\n", (A100, P40)),
        ("Odd, with a comma, 6.1\n", (Gpu(name="Odd, with a comma", capability="6.1"),)),
        ("No devices were found\n", ()),
        ("", ()),
    ],
)
def test_what_nvidia_smi_says(text: str, cards: tuple[Gpu, ...]) -> None:
    assert place.parse(text) == cards


def shim(folder: Path, script: str) -> None:
    file = folder / "nvidia-smi"
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)


LOOKS = [
    ("echo 'Tesla P40, 6.1'", Sight(gpus=(P40,))),
    ("echo 'No devices were found'", Sight(reason="nvidia-smi lists no card")),
    (
        "echo 'Driver/library version mismatch'; exit 18",
        Sight(reason="nvidia-smi says: Driver/library version mismatch"),
    ),
    ("exit 9", Sight(reason="nvidia-smi says: exit code 9")),
]


@pytest.mark.parametrize(("script", "seen"), LOOKS)
def test_looking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, seen: Sight) -> None:
    shim(tmp_path, script)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    assert place.look() == seen


def test_a_machine_without_nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert place.look() == Sight(reason="nvidia-smi cannot be run: No such file or directory")


NOTHING = Sight(reason="nvidia-smi cannot be run")
DECISIONS = [
    pytest.param("cpu", NOTHING, False, Place(), id="cpu"),
    pytest.param("cpu", NOTHING, True, Place(rehearsal=True), id="cpu rehearsed: enforced"),
    pytest.param("mac", NOTHING, False, Place(), id="mac trains on its CPU"),
    pytest.param("p40", NOTHING, True, Place(rehearsal=True), id="p40 rehearsed"),
    pytest.param("p40", Sight(gpus=(P40,)), True, Place(rehearsal=True), id="rehearsed beside its card"),
    pytest.param("p40", Sight(gpus=(P40,)), False, Place(device="cuda", gpu="Tesla P40 (sm_61)"), id="p40"),
    pytest.param(
        "p40",
        Sight(gpus=(A100, P40)),
        False,
        Place(device="cuda", gpu="Tesla P40 (sm_61)"),
        id="beside another",
    ),
    pytest.param(
        "p40",
        Sight(gpus=(H200,)),
        False,
        Place(device="cuda", gpu="NVIDIA H200 (sm_90)", foreign=True),
        id="only another card",
    ),
    pytest.param(
        "a100",
        Sight(gpus=(A100,)),
        False,
        Place(device="cuda", gpu="NVIDIA A100-SXM4-40GB (sm_80)"),
        id="a100",
    ),
]


@pytest.mark.parametrize(("profile", "sight", "rehearse", "expected"), DECISIONS)
def test_where_a_profile_runs(profile: str, sight: Sight, rehearse: bool, expected: Place) -> None:
    assert place.decide(load(profile), sight, rehearse=rehearse) == expected


@pytest.mark.parametrize("profile", ["p40", "a100"])
def test_no_card_and_no_word_is_refused_with_the_way_out(profile: str) -> None:
    with pytest.raises(WrongMachineError) as caught:
        place.decide(load(profile), NOTHING, rehearse=False)
    (problem,) = caught.value.problems
    assert load(profile).hardware.compute_capability in problem.what  # type: ignore[operator]
    assert problem.why == NOTHING.reason
    assert f"nox -s smoke-{profile} -- --rehearse" in str(problem.todo)


OPEN = [
    ("cpu", Place(rehearsal=True), "hf", []),
    ("p40", Place(device="cuda", gpu="Tesla P40 (sm_61)"), "hf", []),
    ("p40", Place(rehearsal=True), "hf", ["CUDA kernels", "NCCL"]),
    ("p40", Place(device="cuda", gpu="NVIDIA H200 (sm_90)", foreign=True), "hf", ["the card"]),
    (
        "a100",
        Place(rehearsal=True),
        "hf",
        ["vLLM", "CUDA kernels", "NCCL", "bfloat16 arithmetic", "torch.compile"],
    ),
    ("a100", Place(device="cuda", gpu="NVIDIA A100 (sm_80)"), "hf", ["vLLM"]),
]


@pytest.mark.parametrize(("profile", "where", "rollout", "subjects"), OPEN)
def test_what_stays_open_is_named(profile: str, where: Place, rollout: str, subjects: list[str]) -> None:
    """A rehearsal that passed is often quoted as more than it is."""
    found = place.unverified(load(profile), where, rollout)
    assert [text.partition(":")[0] for text in found] == subjects
    assert all(text.partition(": ")[2] for text in found)


def test_only_another_place_than_the_profiles_own_has_a_title() -> None:
    p40 = load("p40")
    assert place.title(p40, Place(rehearsal=True)) == "REHEARSAL on the CPU under p40-sm61's contract"
    told = place.title(p40, Place(device="cuda", gpu=H200.title, foreign=True))
    assert told == "on NVIDIA H200 (sm_90), which is not p40-sm61's card, under p40-sm61's contract"
    assert place.title(p40, Place(device="cuda", gpu=P40.title)) is None
    assert place.title(load("cpu"), Place()) is None


def test_the_command_refuses_before_anything_is_installed(tmp_path: Path) -> None:
    """Gigabytes of CUDA wheels, for a machine that cannot use them, would be fetched otherwise."""
    envs = tmp_path / "envs"
    done = subprocess.run(
        [sys.executable, "-P", "-m", "harness", "climb", "--profile", "p40", "--json"],
        env={**os.environ, "PATH": str(tmp_path), "PYTHONPATH": str(ROOT), "VERLOCK_ENVS": str(envs)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 18, done.stderr
    (problem,) = json.loads(done.stdout)["error"]["problems"]
    assert "--rehearse" in problem["todo"]
    assert not envs.exists()
