"""Counts every operation of a thread by the dtypes that it touches, and finds the forbidden ones.

A ``TorchDispatchMode`` is below autograd and autocast: it sees what is really computed, casts included.
While one is on, some of torch's composite operations take another way (``isTensorSubclassLike`` in
TensorSubclassLikeUtils.h), so that a counted run agrees with one that was not counted to rounding, not to the
bit: measured 4e-7 for a linear layer on a tensor that is not contiguous. Two counted runs are bit-equal.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode

from harness.adapt.contract import dtypes
from harness.adapt.contract.terms import Terms
from harness.adapt.contract.violation import report

Key = tuple[int, str]
"""Bits of the dtypes touched (:data:`dtypes.BITS`), and the device type."""

_ATTENTION = ("_scaled_dot_product_", "_flash_attention_forward", "_efficient_attention_forward")
_BITS = dtypes.BITS


@cache
def _is_composite(operator: Any) -> bool:
    """Made of other operations. In inference mode the dispatcher shows it whole, and hides those."""
    return bool(operator.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd))  # noqa: SLF001


@cache
def _attention_kernel(operator: Any) -> str | None:
    name = str(operator.name()).split(".")[0]
    return name if any(part in name and "backward" not in name for part in _ATTENTION) else None


def _touched(values: Any) -> tuple[int, str | None]:
    """The dtypes of the tensors among ``values``, lists of tensors included, and a device."""
    bits, device = 0, None
    for value in values:
        if isinstance(value, torch.Tensor):
            bits |= _BITS[value.dtype]
            device = value.device.type
        elif type(value) in {list, tuple}:
            inner, found = _touched(value)
            bits |= inner
            device = found or device
    return bits, device


class Counting(TorchDispatchMode):
    """One thread's counts. Threads of autograd's engine inherit the mode of the thread that calls it."""

    def __init__(self, terms: Terms) -> None:
        """Count under these terms."""
        super().__init__()
        self._terms = terms
        self._forbidden = dtypes.mask(terms.dtypes)
        self.counts: Counter[Key] = Counter()
        self.kernels: Counter[str] = Counter()
        self.forbidden = 0
        self.read = 0

    def add(self, other: Counting) -> None:
        """Take over another thread's counts, which may be growing meanwhile."""
        self.counts.update(dict(other.counts))
        self.kernels.update(dict(other.kernels))
        self.forbidden += other.forbidden
        self.read += other.read

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run the operation and count it."""
        kwargs = kwargs or {}
        if types and any(kind is not torch.Tensor for kind in types):
            if FakeTensor in types:
                return func(*args, **kwargs)  # DTensor works out a shape with it: nothing is computed
            return NotImplemented  # DTensor, nested tensor: what they are made of comes by next, in parts
        if _is_composite(func):
            with self:
                return func.decompose(*args, **kwargs)
        kernel = _attention_kernel(func)
        if kernel is not None:
            self.kernels[kernel] += 1
            self._operator(kernel)
        result = func(*args, **kwargs)
        inputs, device = _touched(args)
        outputs, made = _touched(result if type(result) in {list, tuple} else (result,))
        if kwargs:
            inputs |= _touched(kwargs.values())[0]
        key = (inputs | outputs, made or device or "none")
        self.counts[key] += 1
        if (inputs | outputs) & self._forbidden and key[1] != "meta":
            self._judge(func, args, inputs, outputs)
        return result

    def _judge(self, func: Any, args: tuple[Any, ...], inputs: int, outputs: int) -> None:
        if dtypes.kind(func) == "converts" and len(args) > 1:  # copy_(target, source)
            inputs, outputs = _touched(args[1:])[0], outputs | _touched(args[:1])[0]
        if not dtypes.violates(func, self._forbidden, inputs, outputs):
            self.read += dtypes.kind(func) == "converts"
            return
        self.forbidden += 1
        for name in dtypes.names_in((inputs | outputs) & self._forbidden):
            what = f"{func.name()} in {name}"
            report(self._terms, "dtype", name, what=what, reason=self._terms.dtypes[name])

    def _operator(self, name: str) -> None:
        reason = self._terms.operators.get(name)
        if reason is not None:
            self.forbidden += 1
            report(self._terms, "operator", name, what=f"the kernel {name}", reason=reason)
