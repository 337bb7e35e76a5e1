"""A CPU as one of verl's platforms.

verl 0.9.1 knows nvidia, rocm and huawei (verl/plugin/platform). Its engines ask the platform for the
device name, the device module and the process-group backend, so a CPU needs only this class. Releases before
0.9.1 have no platforms: there the patch ``cpu-device`` and a registration stand for it (patches/device.py).
Ray still counts a *logical* GPU, because verl's placement groups ask for one per worker.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch
from verl.plugin.platform import PlatformBase, PlatformRegistry

from harness.adapt.cpu_device import device_module


@PlatformRegistry.register(platform="cpu")
class CpuPlatform(PlatformBase):
    """verl's view of this machine's CPU."""

    def __init__(self) -> None:
        """Build the device module once: verl asks for it on each call."""
        self._module = device_module()

    @property
    def device_name(self) -> str:
        """The torch device type."""
        return "cpu"

    @property
    def vendor_name(self) -> str:
        """The vendor, used only to choose an engine; ``VERL_ENGINE_VENDOR`` overrides it."""
        return "cpu"

    @property
    def device_module(self) -> ModuleType:
        """The stand-in for ``torch.cuda``."""
        return self._module

    def is_available(self) -> bool:
        """A CPU is always there."""
        return True

    def is_platform_available(self, use_smi_check: bool = False) -> bool:  # noqa: ARG002 - verl's signature
        """Never chosen by detection: only ``VERL_PLATFORM=cpu`` selects it, so a GPU is never hidden."""
        return False

    def current_device(self) -> torch.device:
        """A device, not an index: FSDP2 does ``.to(device=get_device_id())`` with it."""
        return torch.device("cpu")

    def device_count(self) -> int:
        """One: ranks on a CPU are processes."""
        return 1

    def set_device(self, device_index: int) -> None:
        """Nothing to select."""

    def synchronize(self, device_index: int | None = None) -> None:
        """CPU operations have ended when they return."""

    def manual_seed(self, seed: int) -> None:
        """Seed torch's CPU generator."""
        torch.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        """Seed torch's CPU generator."""
        torch.manual_seed(seed)

    def set_allocator_settings(self, settings: str) -> None:
        """No caching allocator."""

    def empty_cache(self) -> None:
        """No caching allocator."""

    def get_device_capability(self, device_index: int = 0) -> tuple[int | None, int | None]:  # noqa: ARG002
        """No compute capability."""
        return None, None

    def communication_backend_name(self) -> str:
        """The process-group backend that runs on a CPU."""
        return "gloo"

    def visible_devices_envvar(self) -> str:
        """The variable with which Ray marks the logical GPU it handed out."""
        return "CUDA_VISIBLE_DEVICES"

    @contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:  # noqa: ARG002
        """No NVTX."""
        yield

    def profiler_start(self) -> None:
        """No device profiler."""

    def profiler_stop(self) -> None:
        """No device profiler."""

    def ray_resource_name(self) -> str:
        """The logical GPU of ``ray_kwargs.ray_init.num_gpus``: verl's bundles ask for it."""
        return "GPU"

    def ray_noset_envvars(self) -> list[str]:
        """What keeps Ray from setting the variable above."""
        return ["RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES"]

    def is_ipc_supported(self) -> bool:
        """No device memory to share."""
        return False

    def cudart(self) -> Any:
        """No CUDA runtime."""
        return None
