"""Whole machines, described in facts/*.json: exactly these findings, and the exit code that follows."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from harness.build.doctor import facts as model
from harness.build.doctor.command import measure
from harness.build.doctor.evaluate import evaluate, suggest
from harness.errors import DoctorError, OverrideError
from harness.profiles import load

FOLDER = Path(__file__).with_name("facts")
CANNOT = ["info mps.cannot"] * 6
MISSING = "warning environment.missing"
NO_ENGINE = "info engine.none"
MACHINES: dict[str, tuple[str, list[str]]] = {
    "p40-driver-470": ("p40-sm61", ["error gpu.driver-floor", MISSING]),
    "p40-driver-550": ("p40-sm61", [MISSING]),
    "p40-driver-590": ("p40-sm61", ["error gpu.driver-ceiling", MISSING]),
    "a100-driver-535": ("a100", ["error gpu.driver-floor", MISSING]),
    "a100-driver-580": ("a100", [MISSING]),
    "a100-hidden": ("a100", ["error gpu.hidden", MISSING]),
    "a100-without-driver": ("cpu", [MISSING]),
    "container-small": ("cpu", ["error memory.total", "warning shm.size", MISSING, NO_ENGINE]),
    "container-without-gpu": ("cpu", ["warning shm.size", MISSING]),
    "mac-16gb": ("mac-m4-16g", [MISSING, *CANNOT, NO_ENGINE]),
    "mac-macos-13": (
        "mac-m4-16g",
        [
            "error host.macos",
            "warning memory.total",
            "warning memory.available",
            MISSING,
            "warning disk.nearly-full",
            *CANNOT,
            NO_ENGINE,
        ],
    ),
    "old-linux": (
        "cpu",
        [
            "error host.glibc",
            "error disk.free",
            "warning host.cpus",
            "warning memory.total",
            "warning memory.available",
            "warning limits.files",
            "warning limits.processes",
            MISSING,
        ],
    ),
}
# A profile that the machine is not for.
OTHERS: dict[tuple[str, str], list[str]] = {
    ("container-small", "p40"): [
        "error memory.total",
        "error shm.size",
        "error gpu.absent",
        "error engine.none",
        MISSING,
    ],
    ("a100-without-driver", "a100"): ["error gpu.driver-missing", MISSING],
    ("p40-driver-550", "a100"): [
        "error gpu.driver-floor",
        "error gpu.capability",
        "error gpu.memory",
        MISSING,
    ],
    ("a100-driver-580", "p40"): ["warning gpu.capability", MISSING],
    ("mac-16gb", "p40"): ["error host.system"],
    ("p40-driver-550", "mac"): ["error host.system"],
}


def findings(machine: str, profile: str) -> list[str]:
    facts = model.load(FOLDER / f"{machine}.json")
    return [f"{one.severity} {one.id}" for one in evaluate(facts, measure(load(profile), facts))]


def test_every_description_has_its_row() -> None:
    assert {path.stem for path in FOLDER.glob("*.json")} == set(MACHINES)


@pytest.mark.parametrize("machine", MACHINES)
def test_a_machine_has_these_findings_and_no_others(machine: str) -> None:
    profile, expected = MACHINES[machine]
    assert suggest(model.load(FOLDER / f"{machine}.json")) == profile
    assert sorted(findings(machine, profile)) == sorted(expected)


@pytest.mark.parametrize(("machine", "profile"), OTHERS)
def test_a_profile_for_another_machine(machine: str, profile: str) -> None:
    assert sorted(findings(machine, profile)) == sorted(OTHERS[machine, profile])


def test_the_gravest_come_first() -> None:
    order = [one.split()[0] for one in findings("mac-macos-13", "mac")]
    assert order == sorted(order, key=["error", "warning", "info"].index)


def test_a_description_with_mistakes_names_each(tmp_path: Path) -> None:
    document = json.loads((FOLDER / "p40-driver-470.json").read_text())
    document["host"]["cpus"] = 0
    document["host"]["gpu"] = "P40"
    file = tmp_path / "facts.json"
    file.write_text(json.dumps(document))
    with pytest.raises(OverrideError) as caught:
        model.load(file)
    assert sorted(str(one.where).rpartition(":")[2] for one in caught.value.problems) == [
        "host.cpus",
        "host.gpu",
    ]


@pytest.mark.parametrize(
    ("text", "where", "what", "why"),
    [
        ("{", "", "Invalid JSON", "one JSON object"),
        ("[]", "", "should be an object", "one JSON object"),
        ("memory/total=1", ":memory", "available (2147483648) is more than total (1)", "2147483648"),
        ("disk/free=9999999999999", ":disk", "free (9999999999999) is more than total", "9999999999999"),
        ("host/cpus=0", ":host.cpus", "greater than or equal to 1", "it is '0'"),
        ("host/gpu=1", ":host.gpu", "not permitted", "no check reads such a key"),
        ("host/cpus", ":host.cpus", "required", "no default would be true"),
        (None, "", "cannot be read", "No such file"),
    ],
)
def test_a_description_that_cannot_be_used_says_where_why_and_what_to_do(
    text: str | None, where: str, what: str, why: str, tmp_path: Path
) -> None:
    """A file's text, or a key of a good description that is set (KEY=VALUE) or taken away (KEY)."""
    file = tmp_path / "facts.json"
    if text and "/" in text:
        document = json.loads((FOLDER / "container-small.json").read_text())
        path, set_, value = text.partition("=")
        section, key = path.split("/")
        document[section].pop(key, None)
        document[section] |= {key: int(value)} if set_ else {}
        text = json.dumps(document)
    if text:
        file.write_text(text)
    with pytest.raises(OverrideError) as caught:
        model.load(file)
    (problem,) = caught.value.problems
    assert problem.where == f"{file}{where}"
    assert what in problem.what
    assert why in str(problem.why)
    assert "--facts-only" in str(problem.todo)


def verlock(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "harness", "doctor", *arguments], capture_output=True, text=True, check=False
    )


def test_the_command_says_the_same_and_fails_on_an_error() -> None:
    done = verlock("--json", "--facts", str(FOLDER / "p40-driver-470.json"))
    assert done.returncode == DoctorError.exit_code, done.stderr
    document = json.loads(done.stdout)
    assert (document["profile"], document["verdict"]) == ("p40-sm61", "cannot run")
    first = document["findings"][0]
    assert first["id"] == "gpu.driver-floor"
    assert "525.60.13" in first["remedy"]
    told = verlock("--facts", str(FOLDER / "p40-driver-470.json"))
    assert "error    gpu.driver-floor: driver 470.256.02 is older than 525.60.13" in told.stdout
    assert verlock("--facts", str(FOLDER / "p40-driver-550.json")).returncode == 0


def test_a_description_that_leaves_out_what_is_needed_is_no_promise(tmp_path: Path) -> None:
    document = json.loads((FOLDER / "p40-driver-550.json").read_text())
    del document["nvidia"], document["engines"]
    file = tmp_path / "facts.json"
    file.write_text(json.dumps(document))
    done = verlock("--json", "--facts", str(file), "--profile", "p40")
    assert (done.returncode, json.loads(done.stdout)["verdict"]) == (0, "can run as far as is known")
    told = verlock("--facts", str(file), "--profile", "p40").stdout
    assert "p40-sm61 can run here, as far as is known; 3 warnings" in told
    assert "no GPU" not in told
    assert "on PATH" not in told


def test_another_machine_is_not_repaired_from_here() -> None:
    done = verlock("--fix", "--facts", str(FOLDER / "p40-driver-470.json"))
    assert done.returncode == OverrideError.exit_code
    assert "leave one of them out" in done.stderr
