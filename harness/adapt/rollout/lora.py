"""LoRA adapters on their way into a rollout's plain model: a weight becomes W + scale * B A.

verl (workers/engine_workers.py, update_weights) sends the base weights once, where the rollout has none, and
the adapters after each step; vLLM keeps both apart. Names are peft's (``get_peft_model_state_dict``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch

_PREFIX = "base_model.model."
_A, _B = ".lora_A.weight", ".lora_B.weight"
_WRAPPED = ".base_layer"
# What makes of an adapter something else than W + scale * B A.
_OTHER_KINDS = ("use_dora", "use_rslora", "use_qalora", "rank_pattern", "alpha_pattern", "modules_to_save")


def scale_of(peft: Mapping[str, Any]) -> float:
    """``lora_alpha / r``. Raises :class:`NotImplementedError` for kinds of adapters that are not handled."""
    other = [name for name in _OTHER_KINDS if peft.get(name)]
    if other or peft.get("bias", "none") != "none":
        message = f"the hf rollout takes plain LoRA adapters, not {', '.join(other) or 'a trained bias'}"
        raise NotImplementedError(message)
    return float(peft["lora_alpha"]) / float(peft["r"])


def unwrapped(weights: Iterable[tuple[str, torch.Tensor]]) -> Iterator[tuple[str, torch.Tensor]]:
    """Base weights under the names of a model without adapters."""
    for name, tensor in weights:
        yield name.replace(_WRAPPED, ""), tensor


def merged(
    tensors: Mapping[str, torch.Tensor], scale: float, base: Mapping[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """The weights of the adapted modules. ``base`` are those of the model without adapters, by name.

    Raises :class:`KeyError` for an adapter without its other half or its module, and for other tensors.
    """
    modules = {name.removesuffix(_A).removesuffix(_B) for name in tensors}
    found = {}
    for module in sorted(modules):
        name = f"{module.removeprefix(_PREFIX)}.weight"
        down, up, weight = tensors.get(module + _A), tensors.get(module + _B), base.get(name)
        if down is None or up is None or weight is None:
            message = f"no plain LoRA adapter of the rollout's model: {module}"
            raise KeyError(message)
        found[name] = weight + scale * (up.to(weight) @ down.to(weight))
    return found
