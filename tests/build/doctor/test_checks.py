"""Each check: one machine that trips it, and one as near to that as can be that does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import pytest

from harness.build.doctor.command import measure
from harness.build.doctor.evaluate import evaluate
from harness.build.doctor.facts import Facts
from harness.build.doctor.finding import CheckId, Finding
from harness.profiles import load, names

GIB = 1 << 30
Healthy = Callable[[str, dict[str, Any]], Facts]
CPU, MAC, P40, A100 = "cpu", "mac-m4-16g", "p40-sm61", "a100"
CARD = "nvidia/cards"
P40_CARD: dict[str, Any] = {"name": "Tesla P40", "memory_mib": 23040}

# The check, the profile, what is changed on a healthy machine so that it trips, the nearest that does not,
# the severity, and a word that reason or remedy must have.
TABLE: list[tuple[str, str, dict[str, Any], dict[str, Any], str, str]] = [
    ("host.system", P40, {"host/machine": "aarch64"}, {}, "error", "processor"),
    ("host.system", MAC, {"host/machine": "x86_64"}, {}, "error", "wheels"),
    ("host.macos", MAC, {"host/macos": "13.7.8"}, {"host/macos": "14.0"}, "error", "tensordict"),
    ("host.glibc", CPU, {"host/glibc": "2.27"}, {"host/glibc": "2.28"}, "error", "manylinux_2_28"),
    ("host.glibc", A100, {"host/glibc": "2.28"}, {"host/glibc": "2.31"}, "error", "manylinux_2_31"),
    ("host.cpus", CPU, {"host/cpus": 1}, {"host/cpus": 2}, "warning", "heartbeats"),
    (
        "memory.total",
        CPU,
        {"memory": {"total": 8 * GIB, "available": 7 * GIB}},
        {"memory": {"total": 15 * GIB, "available": 14 * GIB}},
        "warning",
        "plan memory",
    ),
    ("memory.total", CPU, {"memory/limit": 2 * GIB}, {"memory/limit": 16 * GIB}, "error", "docker run"),
    ("memory.available", CPU, {"memory/available": 2 * GIB}, {"memory/available": 3 * GIB}, "warning", "1.9"),
    ("disk.free", CPU, {"disk/free": GIB // 2}, {"disk/free": 30 * GIB}, "error", "records"),
    (
        "disk.free",
        A100,
        {"environment": None, "disk/free": 10 * GIB},
        {"environment": None, "disk/free": 26 * GIB},
        "error",
        "budgets",
    ),
    ("disk.nearly-full", CPU, {"disk/free": 24 * GIB}, {"disk/free": 26 * GIB}, "warning", "95 %"),
    ("shm.size", CPU, {"shm/free": 64 << 20}, {"shm/free": 256 << 20}, "warning", "object store"),
    ("shm.size", A100, {"shm/free": 64 << 20, "host/container": True}, {}, "error", "--shm-size=64g"),
    ("limits.files", CPU, {"ulimits/files_hard": 1024}, {"ulimits/files_hard": 4096}, "warning", "EMFILE"),
    (
        "limits.processes",
        CPU,
        {"ulimits/processes_soft": 1024},
        {"ulimits/processes_soft": 4096},
        "warning",
        "ulimit -u",
    ),
    ("leftovers", CPU, {"leftovers": {"processes": 1}}, {"leftovers": {}}, "warning", "--fix"),
    ("leftovers", CPU, {"leftovers": {"ray_folders": 1}}, {}, "warning", "--fix"),
    ("facts.unknown", P40, {"nvidia/driver": "banana"}, {}, "warning", "'banana' is no version"),
    ("facts.unknown", P40, {"nvidia/driver": None}, {}, "warning", "nvidia.driver"),
    ("facts.unknown", P40, {"nvidia": {"smi": True}}, {"nvidia": {"on_bus": 1}}, "warning", "which GPUs"),
    (
        "facts.unknown",
        A100,
        {CARD: [{"name": "Card", "memory_mib": 40960}]},
        {},
        "warning",
        "capability of Card",
    ),
    ("facts.unknown", CPU, {"host/glibc": None}, {}, "warning", "the facts do not say it"),
    ("facts.unknown", CPU, {"host/glibc": "2.x"}, {}, "warning", "'2.x' is no version"),
    ("facts.unknown", MAC, {"host/macos": None}, {}, "warning", "version of macOS"),
    ("facts.unknown", MAC, {"host/macos": "banana"}, {}, "warning", "'banana' is no version"),
    ("facts.unknown", CPU, {"shm": None}, {}, "warning", "/dev/shm"),
    ("gpu.absent", P40, {"nvidia": {"on_bus": 0}}, {}, "error", "--rehearse"),
    ("gpu.absent", A100, {"nvidia": {"on_bus": 0}, "host/container": True}, {}, "error", "--gpus all"),
    ("gpu.driver-missing", P40, {"nvidia": {"on_bus": 1}}, {}, "error", "nvidia-smi is not installed"),
    ("gpu.hidden", A100, {"nvidia/visible": ""}, {"nvidia/visible": "0"}, "error", "unset"),
    ("gpu.hidden", A100, {"nvidia/visible": "3"}, {"nvidia/visible": "GPU-1a2b"}, "error", "nvidia-smi -L"),
    (
        "gpu.driver-floor",
        P40,
        {"nvidia/driver": "470.256.02"},
        {"nvidia/driver": "525.60.13"},
        "error",
        "CUDA 12",
    ),
    (
        "gpu.driver-floor",
        A100,
        {"nvidia/driver": "535.183.01"},
        {"nvidia/driver": "580.65.06"},
        "error",
        "CUDA 13",
    ),
    (
        "gpu.driver-ceiling",
        P40,
        {"nvidia/driver": "590.44.01"},
        {"nvidia/driver": "580.95.05"},
        "error",
        "branch 580",
    ),
    ("gpu.capability", A100, {CARD: [{**P40_CARD, "memory_mib": 99999}]}, {}, "error", "without --profile"),
    (
        "gpu.capability",
        P40,
        {CARD: [{"name": "Tesla T4", "memory_mib": 23040}]},
        {CARD: [P40_CARD]},
        "warning",
        "another card",
    ),
    (
        "gpu.memory",
        P40,
        {CARD: [{**P40_CARD, "memory_mib": 16384}]},
        {CARD: [{**P40_CARD, "memory_mib": 22938}]},
        "error",
        "plan memory",
    ),
    (
        "gpu.busy",
        P40,
        {CARD: [{**P40_CARD, "used_mib": 9000}]},
        {CARD: [{**P40_CARD, "used_mib": 400}]},
        "warning",
        "nvidia-smi",
    ),
    (
        "gpu.architecture",
        P40,
        {"environment/torch/architectures": ["sm_70", "sm_75", "sm_80", "compute_90"]},
        {"environment/torch/architectures": ["sm_60"]},
        "error",
        "2.7.1",
    ),
    (
        "gpu.architecture",
        A100,
        {"environment/torch/architectures": []},
        {"environment/torch/architectures": ["compute_75"]},
        "error",
        "CPUs alone",
    ),
    ("gpu.unseen", P40, {"environment/torch/devices": 0}, {}, "error", "nvidia-uvm"),
    ("environment.missing", CPU, {"environment": None}, {}, "warning", "--fix"),
    ("environment.differs", CPU, {"environment/packages/torch": "2.12.0+cpu"}, {}, "error", "--fresh"),
    (
        "environment.differs",
        CPU,
        {"environment/python": "3.12.1"},
        {"environment/python": "3.11.2"},
        "error",
        "locked",
    ),
    (
        "environment.forbidden",
        P40,
        {"environment/packages/vllm": "0.8.5"},
        {"environment/packages/pip": "26"},
        "error",
        "sm_70",
    ),
    (
        "environment.torch",
        CPU,
        {"environment/torch": None, "environment/torch_error": "OSError: libgomp.so.1"},
        {},
        "error",
        "libgomp",
    ),
    ("environment.ray", CPU, {"environment/ray": None}, {}, "error", "not installed"),
    ("mps.cannot", MAC, {}, {}, "info", "process-group"),
    (
        "mps.built",
        MAC,
        {"environment/torch/mps": {"built": False, "available": False}},
        {},
        "warning",
        "Metal",
    ),
    (
        "mps.available",
        MAC,
        {"environment/torch/mps": {"built": True, "available": False}},
        {},
        "warning",
        "macOS",
    ),
    (
        "mps.tensor",
        MAC,
        {"environment/torch/mps": {"built": True, "available": True, "tensor": "RuntimeError: MPS backend"}},
        {},
        "warning",
        "RuntimeError: MPS backend",
    ),
    ("engine.none", A100, {"engines": []}, {}, "error", "docker"),
    (
        "engine.none",
        CPU,
        {"engines": [{"title": "docker", "usable": False, "missing": "no daemon"}]},
        {},
        "info",
        "no daemon",
    ),
]


def found(name: str, change: dict[str, Any], healthy: Healthy) -> list[Finding]:
    facts = healthy(name, change)
    return list(evaluate(facts, measure(load(name), facts)))


@pytest.mark.parametrize(
    "row", TABLE, ids=[f"{row[0]}-{row[1]}-{number}" for number, row in enumerate(TABLE)]
)
def test_a_check_trips_on_one_machine_and_not_on_its_neighbour(
    row: tuple[str, str, dict[str, Any], dict[str, Any], str, str], healthy: Healthy
) -> None:
    check, profile, trips, quiet, severity, word = row
    hits = [one for one in found(profile, trips, healthy) if one.id == check]
    assert hits
    assert {one.severity for one in hits} == {severity}
    assert word in " ".join(f"{one.what} {one.reason} {one.remedy}" for one in hits)
    if check != "mps.cannot":  # it says what never changes; another profile says nothing
        assert check not in [one.id for one in found(profile, quiet, healthy)]
    assert check not in [one.id for one in found(CPU, {}, healthy)]


def test_a_locked_package_that_the_card_cannot_run_is_refused(healthy: Healthy) -> None:
    facts = healthy(A100, {})
    against = measure(load(A100), facts)
    assert "wheels.refused" not in [one.id for one in evaluate(facts, against)]
    hardware = load(A100).hardware.model_copy(update={"compute_capability": "7.0"})
    older = against.model_copy(update={"profile": load(A100).model_copy(update={"hardware": hardware})})
    refused = [one for one in evaluate(facts, older) if one.id == "wheels.refused"]
    assert any(one.what.startswith("vllm") for one in refused)
    assert any("580" in one.reason for one in refused)


def test_every_check_has_its_row() -> None:
    assert {row[0] for row in TABLE} | {"wheels.refused"} == set(get_args(CheckId))


@pytest.mark.parametrize("name", names())
def test_on_a_healthy_machine_there_is_nothing_to_find(name: str, healthy: Healthy) -> None:
    assert [one for one in found(name, {}, healthy) if one.id != "mps.cannot"] == []


@pytest.mark.parametrize(
    ("key", "profile", "silent"),
    [
        ("schema_version", CPU, ""),
        ("environment", CPU, "environment.missing"),
        ("leftovers", CPU, "leftovers"),
        ("shm", CPU, "shm.size"),
        ("engines", P40, "engine.none"),
        ("nvidia", P40, "gpu.absent"),
    ],
)
def test_a_key_that_is_left_out_is_not_known_and_no_verdict(
    key: str, profile: str, silent: str, healthy: Healthy
) -> None:
    """A description without the key: one warning that names it, and nothing follows from the default."""
    document = healthy(profile, {}).model_dump(exclude_unset=True)
    del document[key]
    facts = Facts.model_validate(document)
    findings = evaluate(facts, measure(load(profile), facts))
    assert [(one.id, one.severity) for one in findings if one.id != "environment.missing"] == [
        ("facts.unknown", "warning")
    ]
    assert f"({key}" in findings[0].what
    assert silent not in [one.id for one in findings]


@pytest.mark.parametrize("key", ["nvidia", "engines"])
def test_what_the_profile_does_not_need_need_not_be_known(key: str, healthy: Healthy) -> None:
    document = healthy(CPU, {}).model_dump(exclude_unset=True)
    del document[key]
    facts = Facts.model_validate(document)
    assert evaluate(facts, measure(load(CPU), facts)) == ()


@pytest.mark.parametrize(
    ("profile", "change"),
    [
        (P40, {"nvidia": {"on_bus": 1, "smi": True, "driver": "banana"}}),
        (MAC, {"host/macos": "banana"}),
        (CPU, {"host/glibc": "banana"}),
    ],
)
def test_a_word_that_is_no_version_is_neither_old_nor_new(
    profile: str, change: dict[str, Any], healthy: Healthy
) -> None:
    ids = {one.id for one in found(profile, change, healthy)}
    assert "facts.unknown" in ids
    assert ids.isdisjoint({"gpu.driver-floor", "gpu.driver-ceiling", "host.macos", "host.glibc"})
