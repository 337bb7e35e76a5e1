"""Machines to examine."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from harness.build.doctor.command import measure
from harness.build.doctor.facts import Facts
from harness.profiles import load

GIB = 1 << 30
Change = dict[str, Any]
Healthy = Callable[[str, Change], Facts]
MPS = {"built": True, "available": True, "tensor": "ok"}
TORCH: dict[str, dict[str, Any]] = {
    "cpu": {"version": "2.13.0+cpu", "mps": {"built": False, "available": False}},
    "mac-m4-16g": {"version": "2.13.0", "mps": MPS},
    "p40-sm61": {
        "version": "2.7.1+cu126",
        "cuda": "12.6",
        "architectures": ["sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90"],
        "devices": 1,
        "mps": {"built": False, "available": False},
    },
    "a100": {
        "version": "2.11.0+cu130",
        "cuda": "13.0",
        "architectures": ["sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120"],
        "devices": 1,
        "mps": {"built": False, "available": False},
    },
}
CARDS = {
    "p40-sm61": ("550.163.01", {"name": "Tesla P40", "capability": "6.1", "memory_mib": 23040}),
    "a100": ("580.95.05", {"name": "NVIDIA A100-PCIE-40GB", "capability": "8.0", "memory_mib": 40960}),
}


def healthy(name: str, change: Change) -> Facts:
    """A machine on which nothing is wrong for a profile, but for what ``change`` sets (by dotted path)."""
    mac = name.startswith("mac")
    host: dict[str, Any] = {
        "system": "linux",
        "machine": "x86_64",
        "release": "6.1",
        "glibc": "2.36",
        "cpus": 8,
    }
    if mac:
        host = {"system": "darwin", "machine": "arm64", "release": "24.6", "macos": "15.6", "cpus": 10}
    document: dict[str, Any] = {
        "schema_version": 1,
        "host": host,
        "memory": {"total": 128 * GIB, "available": 120 * GIB},
        "disk": {"total": 500 * GIB, "free": 300 * GIB},
        "shm": None if mac else {"total": 64 * GIB, "free": 64 * GIB},
        "ulimits": {"files_soft": 1024, "files_hard": 1048576, "processes_soft": None},
        "engines": [{"title": "docker 28.2.2", "usable": True}],
        "nvidia": {"on_bus": 0},
        "leftovers": {"processes": 0},
    }
    if name in CARDS:
        driver, card = CARDS[name]
        document["nvidia"] = {"on_bus": 1, "nodes": 1, "smi": True, "driver": driver, "cards": [card]}
    profile = load(name)
    locked = measure(profile, Facts.model_validate(document)).locked
    document["environment"] = {
        "python": "3.11.9",
        "packages": dict(locked),
        "torch": deepcopy(TORCH[name]),
        "ray": locked["ray"],
    }
    for path, value in change.items():
        *parents, last = path.split("/")
        node = document
        for key in parents:
            node = node[int(key)] if isinstance(node, list) else node[key]
        node[last] = value
    return Facts.model_validate(document)


@pytest.fixture(name="healthy")
def _healthy() -> Healthy:
    return healthy
