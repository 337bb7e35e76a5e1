"""The FSDP engine: seeding, and offload without an accelerator."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

from harness.adapt import names
from harness.adapt.anchors import Anchor
from harness.adapt.patch import Patch, acted
from harness.adapt.settings import Settings

MODULE = "verl.workers.engine.fsdp.transformer_impl"
SEED_NAME = names.ENGINE_SEED
PIN_NAME = names.OFFLOAD_WITHOUT_PINNING


def _apply_seed(module: ModuleType, _settings: Settings) -> None:
    import torch

    original = module.FSDPEngine.initialize

    @functools.wraps(original)
    def initialize(self: Any) -> Any:
        acted(SEED_NAME)
        torch.manual_seed(self.engine_config.seed)
        return original(self)

    module.FSDPEngine.initialize = initialize


SEED = Patch(
    name=SEED_NAME,
    reason="a critic's value head starts from torch's global generator, which is random in each process",
    evidence="measured with verl 0.9.1: two PPO runs with equal seeds differ from step 1; engine_config.seed "
    "is used only with full_determinism",
    module=MODULE,
    verl=">=0.7.1,<0.10",
    anchor=Anchor(
        target="FSDPEngine.initialize",
        fragments=("self._build_model_optimizer()",),
        fixed=lambda source: "seed" in source,
    ),
    when=lambda _settings: True,
    apply=_apply_seed,
)


def _apply_pinning(module: ModuleType, _settings: Settings) -> None:
    original = module.CPUOffloadPolicy

    def policy(pin_memory: bool = True) -> Any:  # noqa: ARG001 - the caller's wish is what cannot be met
        acted(PIN_NAME)
        return original(pin_memory=False)

    module.CPUOffloadPolicy = policy  # type: ignore[attr-defined]


PIN_MEMORY = Patch(
    name=PIN_NAME,
    reason="the FSDP2 reference policy is offloaded with pinned memory, and pinning needs an accelerator",
    evidence="verl 0.9.1 transformer_impl.py _build_fsdp_module; torch: 'Cannot access accelerator device "
    "when none is available'",
    module=MODULE,
    verl=">=0.7.1,<0.10",
    anchor=Anchor(
        target="FSDPEngine._build_fsdp_module",
        fragments=("CPUOffloadPolicy(pin_memory=True)",),
        fixed=lambda source: "pin_memory=True" not in source,
    ),
    when=lambda settings: settings.device == "cpu",
    apply=_apply_pinning,
)
