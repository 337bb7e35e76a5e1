"""The attention mask of padded batches in 0.7."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

from harness.adapt import names
from harness.adapt.anchors import Anchor
from harness.adapt.patch import Patch, acted
from harness.adapt.settings import Settings

NAME = names.PADDED_MASK


def _apply(module: ModuleType, _settings: Settings) -> None:
    import torch

    original = module.FSDPEngineWithLMHead.prepare_model_inputs

    @functools.wraps(original)
    def prepare_model_inputs(self: Any, micro_batch: Any) -> Any:
        inputs, others = original(self, micro_batch)
        given = inputs.get("attention_mask")
        if given is not None:  # none where padding is removed
            acted(NAME)
            lengths = micro_batch["input_ids"].offsets().diff()
            places = torch.arange(given.shape[1], device=given.device)
            inputs["attention_mask"] = (places < lengths.unsqueeze(1)).to(given.dtype)
        return inputs, others

    module.FSDPEngineWithLMHead.prepare_model_inputs = prepare_model_inputs


MASK = Patch(
    name=NAME,
    reason="without padding removal (which needs flash-attn) the attention mask of a sequence is as long as "
    "its response, not as the sequence",
    evidence="verl 0.7.1 transformer_impl.py prepare_model_inputs: ones_like(t) for t in loss_mask; 0.8 "
    "builds it from input_ids; measured: probabilities of the tiny model differ by 5e-4 from a generator's",
    module="verl.workers.engine.fsdp.transformer_impl",
    verl=">=0.7.1,<0.8",
    until="0.8",
    anchor=Anchor(
        target="FSDPEngineWithLMHead.prepare_model_inputs",
        fragments=("[torch.ones_like(t, dtype=torch.int32) for t in loss_mask]",),
        fixed=lambda source: "build_attention_mask_from_nested" in source,
    ),
    when=lambda _settings: True,
    apply=_apply,
)
