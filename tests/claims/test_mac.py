"""Claims about Apple silicon, as far as another machine can check them."""

from __future__ import annotations

import re
import sys

import pytest
import torch

from harness.build import lockfile
from harness.build.lock import folder
from harness.profiles import load

MAC = load("mac-m4-16g")


def pins(file: str) -> dict[str, lockfile.Pin]:
    return lockfile.parse((folder(MAC) / file).read_text(encoding="utf-8"), file=file)


@pytest.mark.skipif(sys.platform != "linux", reason="it is about builds for Linux")
def test_a_linux_build_of_torch_has_no_mps() -> None:
    assert not torch.backends.mps.is_built()


def test_verl_has_no_mps(sources: dict[str, str]) -> None:
    word = re.compile(r"\bmps\b", re.IGNORECASE)
    lines = [line for text in sources.values() for line in text.splitlines() if word.search(line)]
    assert all(line.strip().startswith("#") for line in lines)
    platforms = sources["plugin/platform/platform_manager.py"]
    assert "Falling back to 'nvidia'" in platforms


def test_the_macs_lock_has_ray_and_torch_and_no_vllm() -> None:
    native = pins("requirements-macos.lock")
    assert {"ray", "torch", "tensordict", "pyarrow", "verl"} <= set(native)
    strange = {"vllm", "flash-attn", "triton", "sglang"}
    assert not strange & set(native)
    assert [name for name in native if name.startswith("nvidia-")] == []


def test_the_macs_object_store_is_below_rays_limit() -> None:
    assert MAC.overrides()["+ray_kwargs.ray_init.object_store_memory"] == 1 << 30


def test_the_arm64_lock_has_a_tensordict_that_works() -> None:
    assert pins("requirements.lock")["tensordict"].version == "0.10.0"


def test_mps_has_no_process_group_backend() -> None:
    """torch names gloo for it, and gloo takes its tensors nowhere (pytorch#160732, #189853)."""
    import torch.distributed as dist

    assert [name for name, devices in dist.Backend.backend_capability.items() if "mps" in devices] == []
    assert "cpu" in dist.Backend.backend_capability["gloo"]
    assert "pytorch#160732" in MAC.hardware.cannot["training"]
