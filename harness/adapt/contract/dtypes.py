"""Which operations of a dtype are arithmetic, and which only hold, name or read it."""

from __future__ import annotations

from functools import cache
from typing import Any, Literal

import torch

Kind = Literal["computes", "converts", "holds"]

BITS: dict[torch.dtype, int] = {
    dtype: 1 << number
    for number, dtype in enumerate(
        dict.fromkeys(value for value in vars(torch).values() if isinstance(value, torch.dtype))
    )
}
NAMES: dict[int, str] = {bit: str(dtype).removeprefix("torch.") for dtype, bit in BITS.items()}
_CONVERTS = ("aten::_to_copy", "aten::copy_", "aten::to", "aten::_foreach_copy_")
_ALLOCATES = ("aten::empty", "aten::new_empty", "aten::set_", "aten::resize_")


def mask(names: Any) -> int:
    """The bits of some dtypes' names. A name that is no dtype of torch (``tf32``) has none."""
    wanted = set(names)
    return sum(bit for bit, name in NAMES.items() if name in wanted)


def names_in(bits: int) -> list[str]:
    """The names of the dtypes in a mask."""
    return [name for bit, name in NAMES.items() if bits & bit]


@cache
def kind(operator: Any) -> Kind:
    """What an operator does with its elements.

    A view, an allocation and a change of metadata compute nothing. A conversion is arithmetic where its
    result is forbidden; *from* a forbidden dtype it is how weights that are stored in it are read.
    """
    name = operator.name().split(".")[0]
    if name in _CONVERTS:
        return "converts"
    if operator.is_view or name.startswith(_ALLOCATES):
        return "holds"
    return "computes"


def violates(operator: Any, forbidden: int, inputs: int, outputs: int) -> bool:
    """Whether an operation with these dtypes going in and out breaks a ban on ``forbidden``."""
    match kind(operator):
        case "holds":
            return False
        case "converts":
            return bool(outputs & forbidden)
        case "computes":
            return bool((inputs | outputs) & forbidden)
