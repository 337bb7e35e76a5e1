"""Counts the bytes of all tensor storages that are alive, fake or real, and remembers the most there were.

torch's own MemTracker sorts what it sees into parameters, gradients and activations by hooks on modules, and
misses the optimiser's state of sharded parameters (tried with torch 2.13). A storage needs no sorting: it is
there from the operation that made it until nothing holds it.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass
from torch.utils._pytree import tree_leaves


@dataclass(kw_only=True)
class Span:
    """Live bytes at the start of a span, at most within it, and at its end."""

    before: int
    peak: int = 0
    after: int = 0

    @property
    def above(self) -> int:
        """What the span took at most beyond what was there."""
        return self.peak - self.before


class Live(TorchDispatchMode):
    """Watches every operation in its context."""

    def __init__(self) -> None:
        """Nothing is alive yet; tensors that exist already are counted once an operation returns them."""
        super().__init__()
        self.now = 0
        self._peak = 0
        self._sizes: dict[int, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operation, then look at what it returned."""
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            self.see(leaf)
        return result

    def see(self, value: Any) -> None:
        """Count a tensor's storage, once; a DTensor's is that of its local part."""
        if not isinstance(value, torch.Tensor):
            return
        if is_traceable_wrapper_subclass(value):
            for name in value.__tensor_flatten__()[0]:
                self.see(getattr(value, name))
            return
        storage = value.untyped_storage()
        key, size = _key(storage), storage.nbytes()
        if key not in self._sizes:
            self._sizes[key] = 0
            weakref.finalize(storage, self._gone, key)
        self._resized(key, size)

    @contextmanager
    def span(self) -> Iterator[Span]:
        """Measure a part of what is done."""
        outer, self._peak = self._peak, self.now
        found = Span(before=self.now)
        try:
            yield found
        finally:
            found.peak, found.after = self._peak, self.now
            self._peak = max(outer, self._peak)

    def __enter__(self) -> Any:
        """Also watch ``resize_``: FSDP2 frees a gathered parameter by making its storage empty."""
        self._resize = torch.UntypedStorage.resize_
        watcher = self

        def resize_(storage: Any, size: int) -> Any:
            result = watcher._resize(storage, size)
            if _key(storage) in watcher._sizes:
                watcher._resized(_key(storage), size)
            return result

        torch.UntypedStorage.resize_ = resize_
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        """Stop watching."""
        torch.UntypedStorage.resize_ = self._resize
        super().__exit__(*error)

    def _resized(self, key: int, size: int) -> None:
        self.now += size - self._sizes[key]
        self._sizes[key] = size
        self._peak = max(self._peak, self.now)

    def _gone(self, key: int) -> None:
        self.now -= self._sizes.pop(key)


def _key(storage: Any) -> int:
    """The address of the storage itself: Python objects for it come and go."""
    return int(storage._cdata)  # noqa: SLF001 - there is no public name for it
