"""What verl takes for ``torch.cuda`` on a CPU: ``torch.cpu``, completed by what verl calls on it."""

from __future__ import annotations

import platform as host
import resource
import sys
from types import ModuleType

import psutil
import torch


def _peak_bytes(_device: object = None) -> int:
    """Peak resident memory of this process in bytes: the nearest thing to an allocator's peak."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # getrusage(2): bytes on macOS, KiB on Linux


def _memory(_device: object = None) -> tuple[int, int]:
    """Free and total bytes of the host, as ``torch.cuda.mem_get_info`` gives a GPU's."""
    memory = psutil.virtual_memory()
    return memory.available, memory.total


def _name(_device: object = None) -> str:
    """The processor's name: verl looks up a GPU's peak FLOPS by it and reports 0 for an unknown one."""
    return host.processor() or host.machine()


def _nothing(*_args: object, **_kwargs: object) -> None:
    """A CPU has no allocator cache, stream or device index to act on."""


def device_module() -> ModuleType:
    """``torch.cpu`` completed by what verl calls on ``torch.cuda`` (grep ``get_torch_device()``)."""
    module = ModuleType("harness.adapt.cpu_device")
    module.__dict__.update(
        {name: getattr(torch.cpu, name) for name in dir(torch.cpu) if not name.startswith("__")}
    )
    module.__dict__.update(
        empty_cache=_nothing,
        ipc_collect=_nothing,
        reset_peak_memory_stats=_nothing,
        set_device=_nothing,
        manual_seed=torch.manual_seed,
        manual_seed_all=torch.manual_seed,
        get_rng_state=torch.get_rng_state,
        set_rng_state=torch.set_rng_state,
        memory_allocated=_peak_bytes,
        memory_reserved=_peak_bytes,
        max_memory_allocated=_peak_bytes,
        max_memory_reserved=_peak_bytes,
        mem_get_info=_memory,
        get_device_name=_name,
        set_per_process_memory_fraction=_nothing,
    )
    return module
