"""What each GPU did since the last step, from NVML: utilisation, memory, PCIe traffic, read twice a second.

NVML gives moments (a utilisation of the last 1/6 to 1 s, a throughput of the last 20 ms), so a step's figures
are means of many. The binding is NVIDIA's own (nvidia-ml-py), or the copy of it that comes with Ray.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from statistics import fmean
from typing import Any, Self

_BINDINGS = ("pynvml", "ray._private.thirdparty.pynvml")
_TICK_SECONDS = 0.5
_KILOBYTE = 1024  # nvmlDeviceGetPcieThroughput: KB/s


@dataclass
class _Gpu:
    index: int
    name: str
    handle: Any
    utilisation: list[float] = field(default_factory=list)
    memory: list[float] = field(default_factory=list)
    sent: list[float] = field(default_factory=list)
    received: list[float] = field(default_factory=list)


class Gpus:
    """A context manager that reads until its end; without NVML or a GPU it reads nothing."""

    def __init__(self, bindings: Sequence[str] = _BINDINGS) -> None:
        """``bindings`` are tried in turn."""
        self._nvml = _loaded(bindings)
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._gpus = [] if self._nvml is None else _found(self._nvml)
        self._thread = threading.Thread(target=self._loop, name="verlock-gpus", daemon=True)

    def __enter__(self) -> Self:
        """Start reading, where there is something to read."""
        if self._gpus:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self._stop.set()
        if self._gpus:
            self._thread.join(timeout=10)
        if self._nvml is not None:
            with suppress(self._nvml.NVMLError):
                self._nvml.nvmlShutdown()

    def read(self) -> list[dict[str, Any]]:
        """Each GPU since the last call: means, of memory the most; ``None`` is what it does not tell."""
        if self._gpus:
            self._sample()
        with self._lock:
            found = [_told(gpu) for gpu in self._gpus]
            for gpu in self._gpus:
                for readings in (gpu.utilisation, gpu.memory, gpu.sent, gpu.received):
                    readings.clear()
        return found

    def _loop(self) -> None:
        while not self._stop.wait(_TICK_SECONDS):
            self._sample()

    def _sample(self) -> None:
        nvml: Any = self._nvml
        with self._lock:
            for gpu in self._gpus:
                _note(nvml, gpu)


def _note(nvml: Any, gpu: _Gpu) -> None:
    reads: tuple[tuple[list[float], Callable[[], float]], ...] = (
        (gpu.utilisation, lambda: nvml.nvmlDeviceGetUtilizationRates(gpu.handle).gpu),
        (gpu.memory, lambda: nvml.nvmlDeviceGetMemoryInfo(gpu.handle).used),
        (gpu.sent, lambda: _throughput(nvml, gpu.handle, nvml.NVML_PCIE_UTIL_TX_BYTES)),
        (gpu.received, lambda: _throughput(nvml, gpu.handle, nvml.NVML_PCIE_UTIL_RX_BYTES)),
    )
    for readings, read in reads:
        with suppress(nvml.NVMLError):  # not supported by this GPU, or it fell off the bus
            readings.append(float(read()))


def _throughput(nvml: Any, handle: Any, direction: int) -> float:
    return float(nvml.nvmlDeviceGetPcieThroughput(handle, direction)) * _KILOBYTE


def _loaded(bindings: Sequence[str]) -> Any:
    """NVML, initialised; none where there is no binding or no driver."""
    for name in bindings:
        try:
            nvml = import_module(name)
        except ImportError:
            continue
        try:
            nvml.nvmlInit()
        except nvml.NVMLError:
            return None
        return nvml
    return None


def _found(nvml: Any) -> list[_Gpu]:
    handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
    names = [nvml.nvmlDeviceGetName(handle) for handle in handles]
    return [
        # Older bindings give bytes.
        _Gpu(index=index, name=name.decode() if isinstance(name, bytes) else name, handle=handle)
        for index, (handle, name) in enumerate(zip(handles, names, strict=True))
    ]


def _told(gpu: _Gpu) -> dict[str, Any]:
    return {
        "index": gpu.index,
        "name": gpu.name,
        "utilisation_percent": _mean(gpu.utilisation),
        "memory_bytes": max(map(int, gpu.memory), default=None),
        "pcie_sent_bytes_per_second": _mean(gpu.sent),
        "pcie_received_bytes_per_second": _mean(gpu.received),
    }


def _mean(readings: Sequence[float]) -> float | None:
    return round(fmean(readings), 1) if readings else None
