"""Triton's kernels: refused where the card cannot run them, and where one asks for more than a block has."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

from harness.adapt.contract.terms import Terms
from harness.adapt.contract.violation import report

NAME = "triton"


def too_much(requested: int, terms: Terms) -> str | None:
    """Why a block cannot have ``requested`` bytes of shared memory; none where it can."""
    most = terms.shared_memory
    if most is None or requested <= most:
        return None
    return (
        f"The kernel asks for {requested} bytes of shared memory a block, and the card has {most}. "
        "Smaller tiles or fewer stages ask for less."
    )


def _refuse(terms: Terms, kernel: str) -> None:
    reason = terms.kernels.get(NAME)
    if reason is not None:
        report(terms, "kernel", NAME, what=f"launch of the Triton kernel {kernel}", reason=reason)


def guard_launch(module: ModuleType, terms: Terms) -> None:
    """``kernel[grid](...)``, before Triton looks for a driver or compiles anything."""
    original = module.JITFunction.run

    @functools.wraps(original)
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not kwargs.get("warmup"):  # a warm-up compiles only
            _refuse(terms, getattr(self.fn, "__name__", "?"))
        return original(self, *args, **kwargs)

    module.JITFunction.run = run


def guard_load(module: ModuleType, terms: Terms) -> None:
    """A compiled kernel: what it asks for, and its way onto the card (torch.compile comes by here too)."""
    made, loaded = module.CompiledKernel.__init__, module.CompiledKernel._init_handles  # noqa: SLF001

    @functools.wraps(made)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        made(self, *args, **kwargs)
        requested = int(getattr(self.metadata, "shared", 0) or 0)
        reason = too_much(requested, terms)
        if reason is not None:
            what = f"the Triton kernel {self.metadata.name} with {requested} bytes of shared memory"
            report(terms, "shared memory", str(self.metadata.name), what=what, reason=reason)

    @functools.wraps(loaded)
    def init_handles(self: Any) -> Any:
        _refuse(terms, str(self.metadata.name))
        return loaded(self)

    module.CompiledKernel.__init__ = init
    module.CompiledKernel._init_handles = init_handles  # noqa: SLF001
