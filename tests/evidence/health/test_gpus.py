"""What NVML tells between two steps, with a binding that tells known figures: there is no GPU in CI."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest

from harness.evidence import charts
from harness.evidence.health.gpus import Gpus


class Error(Exception):
    """As ``NVMLError``."""


class Moment:
    """What a reading of utilisation or memory returns."""

    def __init__(self, **values: int) -> None:
        self.__dict__.update(values)


@pytest.fixture
def binding(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Two GPUs: the first is busier at each reading, the second tells its memory alone."""
    made: Any = ModuleType("binding")
    count = {"read": 0, "open": 0}

    def unsupported(*_: object) -> Any:
        raise Error("not supported")

    def only_first(value: Callable[[], Any]) -> Callable[..., Any]:
        return lambda handle, *_: value() if handle == 0 else unsupported()

    def busier() -> Moment:
        count["read"] += 1
        return Moment(gpu=10 * count["read"], memory=0)

    made.NVMLError = Error
    made.NVML_PCIE_UTIL_TX_BYTES, made.NVML_PCIE_UTIL_RX_BYTES = 0, 1
    made.nvmlInit = lambda: count.update(open=count["open"] + 1)
    made.nvmlShutdown = lambda: count.update(open=count["open"] - 1)
    made.nvmlDeviceGetCount = lambda: 2
    made.nvmlDeviceGetHandleByIndex = lambda index: index
    made.nvmlDeviceGetName = lambda handle: ["Tesla P40", b"Tesla P4"][handle]
    made.nvmlDeviceGetUtilizationRates = only_first(busier)
    made.nvmlDeviceGetMemoryInfo = lambda handle: Moment(used=(handle + 1) * 2**30)
    made.nvmlDeviceGetPcieThroughput = lambda handle, way: [2048, 1024][way] if handle == 0 else unsupported()
    made.count = count
    monkeypatch.setitem(sys.modules, "binding", made)
    yield made
    assert count["open"] == 0


def test_means_since_the_last_step_and_none_for_what_is_not_told(binding: Any) -> None:
    with Gpus(["no.such.binding", "binding"]) as gpus:
        time.sleep(1.2)
        first, second = gpus.read()
        readings = binding.count["read"]
        again = gpus.read()[0]
    assert readings >= 3  # twice in between, and once more at the step
    assert first["utilisation_percent"] == pytest.approx(10 * (readings + 1) / 2)
    assert again["utilisation_percent"] == 10 * (readings + 1)
    assert (first["name"], second["name"]) == ("Tesla P40", "Tesla P4")
    assert (first["pcie_sent_bytes_per_second"], first["pcie_received_bytes_per_second"]) == (2**21, 2**20)
    assert second == {
        "index": 1,
        "name": "Tesla P4",
        "utilisation_percent": None,
        "memory_bytes": 2**31,
        "pcie_sent_bytes_per_second": None,
        "pcie_received_bytes_per_second": None,
    }


def test_without_a_driver_nothing_is_read(binding: Any) -> None:
    def absent() -> None:
        raise Error("driver not loaded")

    binding.nvmlInit = absent
    with Gpus(["binding"]) as gpus:
        assert gpus.read() == []
    with Gpus([]) as gpus:
        assert gpus.read() == []


def test_each_figure_that_is_told_has_a_plot(binding: Any) -> None:
    with Gpus(["binding"]) as gpus:
        happened = [{"kind": "gpu", "rung": "ppo", "step": step, "gpus": gpus.read()} for step in (1, 2)]
    older = [{"kind": "gpu", "rung": "ppo-mock", "step": 9, "gpus": []}]
    plots = charts.of_gpus([*older, *happened])
    assert [plot["name"] for plot in plots] == [
        "GPU 0 (Tesla P40): utilisation in %",
        "GPU 0 (Tesla P40): memory in MiB",
        "GPU 0 (Tesla P40): sent over PCIe, MiB/s",
        "GPU 0 (Tesla P40): received over PCIe, MiB/s",
        "GPU 1 (Tesla P4): memory in MiB",
    ]
    assert all("<svg" in plot["svg"] for plot in plots)
