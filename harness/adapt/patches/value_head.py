"""The critic's attention."""

from __future__ import annotations

import functools
from types import CodeType, FunctionType, ModuleType
from typing import Any

from harness.adapt import names
from harness.adapt.anchors import Anchor
from harness.adapt.patch import Patch, acted
from harness.adapt.settings import Settings

NAME = names.VALUE_HEAD_ATTENTION
HARD_CODED = "flash_attention_2"


def with_constant(code: CodeType, old: object, new: object) -> CodeType:
    """The same code with one constant replaced: nothing else of the function changes."""
    return code.replace(co_consts=tuple(new if constant == old else constant for constant in code.co_consts))


def _apply(module: ModuleType, settings: Settings) -> None:
    original: FunctionType = module.load_valuehead_model
    original.__code__ = with_constant(original.__code__, HARD_CODED, settings.attention)

    @functools.wraps(original)
    def load(*args: Any, **kwargs: Any) -> Any:
        acted(NAME)
        return original(*args, **kwargs)

    module.load_valuehead_model = load  # type: ignore[attr-defined]


ATTENTION = Patch(
    name=NAME,
    reason="the critic is loaded with flash_attention_2 whatever override_config says",
    evidence="verl 0.9.1 verl/utils/model.py load_valuehead_model, two places; verl PR #6495; the user sees "
    "'is not a value head model, please install trl'",
    module="verl.utils.model",
    verl=">=0.7.1,<0.10",
    anchor=Anchor(
        target="load_valuehead_model",
        fragments=("attn_implementation='flash_attention_2'",),
        fixed=lambda source: HARD_CODED not in source,
    ),
    when=lambda settings: settings.attention != HARD_CODED,
    apply=_apply,
)
