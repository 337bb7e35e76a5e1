"""Claims about cards, wheels and CUDA, against the limits and profiles that the audit decides by."""

from __future__ import annotations

from importlib.metadata import requires

from packaging.requirements import Requirement

from harness.build.audit import floors, limits
from harness.build.audit.limits import number
from harness.profiles import load

P40 = load("p40-sm61")
LIMITS = limits.load()


def cuda(runtime: str) -> list[str]:
    locked = {"nvidia-cuda-runtime": runtime}
    return [one.what for one in floors.cuda(locked, 61, P40, LIMITS) if "makes no code" in one.what]


def test_cuda_12_makes_code_for_a_p40_and_cuda_13_does_not() -> None:
    assert cuda("12.6.77") == []
    assert cuda("13.0.48") == ["makes no code for sm_61"]


def test_no_vllm_takes_a_p40() -> None:
    found = [floor for floor in LIMITS.floors if floor.package == "vllm"]
    assert found
    assert all(number(floor.capability) > 61 for floor in found)
    assert any(floor.from_version is None for floor in found)  # none of its versions
    assert "vllm" in {ban.name for ban in P40.numerics.forbidden.libraries}
    assert P40.run.rollout == "hf"


def test_verls_own_extra_pins_a_cuda_13_torch() -> None:
    wanted = [Requirement(text) for text in requires("verl") or ()]
    extra = next(
        one for one in wanted if one.name == "torch" and one.marker and one.marker.evaluate({"extra": "vllm"})
    )
    assert str(extra.specifier) == "==2.11.0"
    assert load("a100").software.targets[0].torch.version == "2.11.0"


def test_the_p40_has_48_kib_for_a_block_and_flash_attention_refuses_it_before() -> None:
    assert P40.hardware.shared_memory_per_block_bytes == 49152
    flash = next(floor for floor in LIMITS.floors if floor.package == "flash-attn")
    assert number(flash.capability) == 80
