"""Taking padding out and putting it back, before 0.9 without flash-attn."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from harness.adapt import names
from harness.adapt.anchors import Anchor
from harness.adapt.patch import Patch, acted
from harness.adapt.settings import Settings

NAME = names.PADDING_FUNCTIONS


def _apply(module: ModuleType, _settings: Settings) -> None:
    original = module._get_attention_functions  # noqa: SLF001 - what a patch is for

    def functions() -> tuple[Callable[..., Any], ...]:
        try:
            return tuple(original())
        except ModuleNotFoundError as error:
            if error.name is None or not error.name.startswith("flash_attn"):
                raise
        acted(NAME)
        from verl.utils import npu_flash_attn_utils as own

        return own.index_first_axis, own.pad_input, own.rearrange, own.unpad_input

    module._get_attention_functions = functions  # type: ignore[attr-defined]  # noqa: SLF001


FUNCTIONS = Patch(
    name=NAME,
    reason="every batch goes through flash-attn's padding functions, which need its CUDA wheel; verl has the "
    "same in plain torch, for Ascend cards (npu_flash_attn_utils.py)",
    evidence="verl 0.7.1, 0.8.0 attention_utils.py: No module named 'flash_attn'; 0.9 falls back by itself",
    module="verl.utils.attention_utils",
    verl=">=0.7.1,<0.9",
    until="0.9",
    anchor=Anchor(
        target="_get_attention_functions",
        fragments=(
            "from flash_attn.bert_padding import index_first_axis, pad_input, rearrange, unpad_input",
        ),
        fixed=lambda source: "except ImportError" in source,
    ),
    when=lambda settings: settings.attention not in {"flash_attention_2", "flash_attention_3"},
    apply=_apply,
)
