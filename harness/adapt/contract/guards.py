"""Guards at the doors: a forbidden library, an attention or an autocast is refused when it is asked for."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from fnmatch import fnmatch
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import wrapt

from harness.adapt.contract import ledger
from harness.adapt.contract.terms import Terms
from harness.adapt.contract.violation import report


def ban_of(module: str, terms: Terms) -> tuple[str, str] | None:
    """The ban on a package that a module belongs to, as name and reason. Import names have no hyphens."""
    top = module.partition(".")[0]
    for name, reason in terms.libraries.items():
        if fnmatch(top, name.replace("-", "_")):
            return name, reason
    return None


class _Refusing:
    """Stands for a loader. Looking whether a package is there is allowed; importing it is not."""

    def __init__(self, loader: Any, terms: Terms, ban: tuple[str, str]) -> None:
        self._loader = loader
        self._terms = terms
        self._ban = ban

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        name, reason = self._ban
        report(self._terms, "library", name, what=f"import {spec.name}", reason=reason)
        created: ModuleType | None = self._loader.create_module(spec)
        return created

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)


class ImportGuard:
    """A finder before all others. A package that is not there stays an ImportError, as verl expects."""

    def __init__(self, terms: Terms) -> None:
        """Guard against the libraries of ``terms``."""
        self._terms = terms
        self._looking: set[str] = set()

    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None = None,  # noqa: ARG002 - the protocol's
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        """The real spec with a loader that refuses, for the top of a forbidden package."""
        ban = ban_of(name, self._terms)
        if ban is None or "." in name or name in self._looking:
            return None
        self._looking.add(name)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._looking.discard(name)
        if spec is not None and spec.loader is not None:
            spec.loader = _Refusing(spec.loader, self._terms, ban)  # type: ignore[assignment]
        return spec


def _sight(kind: str, name: str) -> None:
    book = ledger.current()
    if book is not None:
        book.sightings[kind][name] += 1


def guard_attention(module: ModuleType, terms: Terms) -> None:
    """Each attention layer of transformers asks for its implementation by name, at each forward pass."""
    original = module.AttentionInterface.get_interface

    @wrapt.decorator
    def asked(wrapped: Any, _instance: Any, args: Any, kwargs: Any) -> Any:
        name = str(args[0] if args else kwargs.get("attn_implementation"))
        _sight("attention", name)
        reason = terms.attention.get(name)
        if reason is not None:
            report(terms, "attention", name, what=f"attention {name}", reason=reason)
        return wrapped(*args, **kwargs)

    module.AttentionInterface.get_interface = asked(original)


def guard_autocast(module: ModuleType, terms: Terms) -> None:
    """``torch.autocast``: the region in which torch chooses dtypes by itself."""
    original = module.autocast.__enter__

    def enter(self: Any) -> Any:
        if self._enabled:
            dtype = str(self.fast_dtype).removeprefix("torch.")
            _sight("autocast", f"{self.device} {dtype}")
            reason = terms.dtypes.get(dtype)
            if reason is not None:
                report(terms, "autocast", dtype, what=f"autocast to {dtype}", reason=reason)
        return original(self)

    module.autocast.__enter__ = enter


def install(terms: Terms) -> None:
    """Put up all guards; those of modules that are not imported yet wait for the import."""
    from harness.adapt.contract import triton
    from harness.adapt.patch import when_imported

    sys.meta_path.insert(0, ImportGuard(terms))
    when_imported("torch.amp.autocast_mode", lambda module: guard_autocast(module, terms))
    when_imported("transformers.modeling_utils", lambda module: guard_attention(module, terms))
    when_imported("triton.runtime.jit", lambda module: triton.guard_launch(module, terms))
    when_imported("triton.compiler.compiler", lambda module: triton.guard_load(module, terms))
