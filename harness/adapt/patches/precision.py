"""The FSDP engine before 0.9, which computes or sends in bf16 where the configuration says fp32."""

from __future__ import annotations

import functools
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from types import CodeType, FunctionType, ModuleType
from typing import Any

from harness.adapt import names
from harness.adapt.anchors import Anchor
from harness.adapt.patch import Patch, acted
from harness.adapt.settings import Settings

MODULE = "verl.workers.engine.fsdp.transformer_impl"
_FULL = frozenset({"fp32", "float32"})
_in_full: ContextVar[bool] = ContextVar("computes in fp32", default=False)


def _computes_in_full(engine: Any) -> bool:
    mixed = engine.engine_config.mixed_precision
    return mixed is not None and mixed.get("param_dtype") in _FULL


class _Torch(ModuleType):
    """``torch`` as the engine's module sees it: all of it, but for one context manager."""

    def __init__(self, torch: ModuleType) -> None:
        super().__init__(torch.__name__)
        self._torch = torch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._torch, name)

    def autocast(self, *args: Any, **kwargs: Any) -> AbstractContextManager[Any]:
        """None where the engine computes in fp32, as 0.8 does it; torch's own anywhere else."""
        if _in_full.get():
            acted(names.ENGINE_AUTOCAST)
            return nullcontext()
        found: AbstractContextManager[Any] = self._torch.autocast(*args, **kwargs)
        return found


def _apply_autocast(module: ModuleType, _settings: Settings) -> None:
    module.torch = _Torch(module.torch)  # type: ignore[attr-defined]
    original = module.FSDPEngineWithLMHead.forward_step

    @functools.wraps(original)
    def forward_step(self: Any, *args: Any, **kwargs: Any) -> Any:
        token = _in_full.set(_computes_in_full(self))
        try:
            return original(self, *args, **kwargs)
        finally:
            _in_full.reset(token)

    module.FSDPEngineWithLMHead.forward_step = forward_step


AUTOCAST = Patch(
    name=names.ENGINE_AUTOCAST,
    reason="every forward pass is in a bf16 autocast, whatever mixed_precision.param_dtype says",
    evidence="verl 0.7.1 transformer_impl.py:1108; 0.8 takes the parameters' dtype and none for fp32",
    module=MODULE,
    verl=">=0.7.1,<0.8",
    until="0.8",
    anchor=Anchor(
        target="FSDPEngineWithLMHead.forward_step",
        fragments=("with torch.autocast(device_type=device_name, dtype=torch.bfloat16):",),
        fixed=lambda source: "_autocast_dtype" in source,
    ),
    when=lambda _settings: True,
    apply=_apply_autocast,
)


def with_inner_name(code: CodeType, old: str, new: str) -> CodeType:
    """The same code, where the expressions nested in it (a generator's) read another name."""
    inner = (
        one.replace(co_names=tuple(new if name == old else name for name in one.co_names))
        if isinstance(one, CodeType)
        else one
        for one in code.co_consts
    )
    return code.replace(co_consts=tuple(inner))


def _apply_weights(module: ModuleType, _settings: Settings) -> None:
    original: FunctionType = module.FSDPEngine.get_per_tensor_param
    code = with_inner_name(original.__code__, "bfloat16", "float32")
    whole = FunctionType(code, original.__globals__, original.__name__, original.__defaults__)

    @functools.wraps(original)
    def get_per_tensor_param(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not _computes_in_full(self):
            return original(self, *args, **kwargs)
        acted(names.WHOLE_WEIGHTS)
        return whole(self, *args, **kwargs)

    module.FSDPEngine.get_per_tensor_param = get_per_tensor_param


WEIGHTS = Patch(
    name=names.WHOLE_WEIGHTS,
    reason="weights go to the rollout rounded to bf16, whatever dtype the trainer and the rollout compute in",
    evidence="verl 0.7.1 and 0.8.0 transformer_impl.py get_per_tensor_param; measured with both in fp32: "
    "probabilities of the tiny model differ by 6e-6, and by 1e-9 without the rounding",
    module=MODULE,
    verl=">=0.7.1,<0.9",
    until="0.9",
    anchor=Anchor(
        target="FSDPEngine.get_per_tensor_param",
        fragments=("full_tensor().to(torch.bfloat16, non_blocking=True)",),
        fixed=lambda source: ".to(torch.bfloat16" not in source,
    ),
    when=lambda _settings: True,
    apply=_apply_weights,
)
