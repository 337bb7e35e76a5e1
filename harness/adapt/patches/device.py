"""A CPU as verl's device, before 0.9.1 had platforms (harness/adapt/platform.py)."""

from __future__ import annotations

from types import ModuleType

from harness.adapt import names
from harness.adapt.anchors import Anchor
from harness.adapt.patch import Patch, acted
from harness.adapt.settings import Settings

NAME = names.CPU_DEVICE
_ENGINES = {"language_model": "FSDPEngineWithLMHead", "value_model": "FSDPEngineWithValueHead"}


def register_engines(module: ModuleType) -> None:
    """Register verl's FSDP engines for a CPU too, through its own registry: they take any torch device."""
    for kind, name in _ENGINES.items():
        register = module.EngineRegistry.register(model_type=kind, backend=["fsdp", "fsdp2"], device="cpu")
        register(getattr(module, name))


def _apply(module: ModuleType, _settings: Settings) -> None:
    from harness.adapt.cpu_device import device_module

    device = device_module()

    def get_torch_device() -> ModuleType:
        acted(NAME)
        return device

    module.get_torch_device = get_torch_device  # type: ignore[attr-defined]


DEVICE = Patch(
    name=NAME,
    reason="verl takes torch.cpu for torch.cuda, and torch.cpu has no memory, seed or random-state functions",
    evidence="verl 0.7.1 and 0.8.0 engine_workers.py, performance.py: get_torch_device().memory_allocated()",
    module="verl.utils.device",
    verl=">=0.7.1,<0.9",
    until="0.9",
    anchor=Anchor(
        target="get_torch_device",
        fragments=("return getattr(torch, device_name)",),
        fixed=lambda source: "get_platform" in source,
    ),
    when=lambda settings: settings.device == "cpu",
    apply=_apply,
)
