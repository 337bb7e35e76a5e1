"""A stack with its locals as text: of a tensor what one looks for first, of all else one line."""

from __future__ import annotations

import linecache
import reprlib
import sys
from collections.abc import Iterator
from types import FrameType, ModuleType
from typing import Any

_LIBRARY = ("/site-packages/", "/lib/python3")
_KEYS, _FRAMES, _WIDTH = 12, 60, 300
_short = reprlib.Repr()
_short.maxstring = _short.maxother = 200
_short.maxlevel = 3


def text(frame: FrameType, line: int) -> str:
    """The whole stack, innermost (at ``line``) first, with the locals of verl's and the user's frames."""
    return "\n".join(_frames(frame, line)) + "\n"


def _frames(frame: FrameType | None, line: int) -> Iterator[str]:
    count = 0
    while frame is not None and count < _FRAMES:
        code = frame.f_code
        yield f"{code.co_filename}:{line} in {code.co_qualname}"
        source = linecache.getline(code.co_filename, line).strip()
        if source:
            yield f"    > {source}"
        if _own(code.co_filename):
            for name, value in frame.f_locals.items():
                if not isinstance(value, ModuleType) and not name.startswith("__"):
                    yield from described(name, value)
        frame, count = frame.f_back, count + 1
        line = frame.f_lineno if frame else 0


def _own(file: str) -> bool:
    return "/verl/" in file or not any(part in file for part in _LIBRARY)


def described(name: str, value: Any, indent: str = "    ") -> Iterator[str]:
    """A name and its value, a mapping's items below it; never raises."""
    try:
        items = _items(value)
        if items is None:
            yield f"{indent}{name} = {one(value)}"
            return
        yield f"{indent}{name} = {type(value).__name__} of {len(items)}"
        for key, item in list(items.items())[:_KEYS]:
            yield f"{indent}    {key} = {one(item)}"
        if len(items) > _KEYS:
            yield f"{indent}    and {len(items) - _KEYS} more"
    except Exception as error:  # noqa: BLE001 - a foreign object's own code may do anything
        yield f"{indent}{name} = <{type(value).__name__}, which cannot be shown: {type(error).__name__}>"


def _items(value: Any) -> dict[Any, Any] | None:
    """What is shown item by item: mappings, TensorDict, and verl's DataProto by its two halves."""
    if type(value).__name__ == "DataProto":
        tensors, others = getattr(value, "batch", None), getattr(value, "non_tensor_batch", None)
        return {**(dict(tensors.items()) if tensors is not None else {}), **(others or {})}
    if isinstance(value, dict) or type(value).__name__ == "TensorDict":
        return dict(value.items())
    return None


def one(value: Any) -> str:
    """One value in a line."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return _tensor(value)
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple) and hasattr(value, "dtype"):
        first = _short.repr(value.reshape(-1)[:4].tolist())
        return _line(f"{type(value).__name__} {value.dtype} {list(shape)} {first}")
    return _line(_short.repr(value))


def _line(text: str) -> str:
    return " ".join(text.split())[:_WIDTH]


def _tensor(value: Any) -> str:
    head = f"tensor {str(value.dtype).removeprefix('torch.')} {list(value.shape)} {value.device}"
    if (
        value.numel() == 0
        or value.is_meta
        or value.is_sparse
        or value.is_nested
        or hasattr(value, "to_local")
    ):
        return head
    plain = value.detach()
    if plain.dtype.is_floating_point:
        finite = plain.isfinite()
        bad = int((~finite).sum())
        kept = plain[finite].float()
        numbers = f" min {kept.min():.6g} max {kept.max():.6g} mean {kept.mean():.6g}" if kept.numel() else ""
        return f"{head}{numbers}{f', {bad} NOT FINITE' if bad else ''}"
    if plain.dtype.is_complex:
        return head
    return f"{head} min {plain.min().item()} max {plain.max().item()}"
