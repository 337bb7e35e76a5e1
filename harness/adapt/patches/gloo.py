"""Averages over gloo, which torch 2.7 refuses in one collective and gets wrong in another."""

from __future__ import annotations

import functools
import inspect
from importlib.metadata import version
from types import ModuleType
from typing import Any

from packaging.version import Version

from harness.adapt import names
from harness.adapt.anchors import Anchor
from harness.adapt.patch import Patch, acted
from harness.adapt.settings import Settings

NAME = names.GLOO_AVERAGE
# The first of the locked versions that averages rightly in both collectives.
RIGHT = Version("2.11")


def _averages_wrongly() -> bool:
    return Version(version("torch")) < RIGHT


def _apply(module: ModuleType, _settings: Settings) -> None:
    for name, written in (("all_reduce", "tensor"), ("reduce_scatter_tensor", "output")):
        collective = _summing(module, getattr(module, name), written)
        setattr(module, name, collective)
        setattr(module.distributed_c10d, name, collective)


def _summing(module: ModuleType, original: Any, written: str) -> Any:
    """``original`` with AVG as a sum and a division; ``written`` names the argument that takes the result."""
    signature = inspect.signature(original)

    @functools.wraps(original)
    def collective(*args: Any, **kwargs: Any) -> Any:
        call = signature.bind(*args, **kwargs)
        if call.arguments.get("op") != module.ReduceOp.AVG:
            return original(*args, **kwargs)
        acted(NAME)
        call.arguments["op"] = module.ReduceOp.SUM
        work = original(*call.args, **call.kwargs)
        if work is not None:
            work.wait()
        call.arguments[written].div_(module.get_world_size(call.arguments.get("group")))
        return work

    return collective


AVERAGE = Patch(
    name=NAME,
    reason="FSDP2 averages gradients and verl averages losses; over gloo, torch 2.7 cannot",
    evidence="measured on two ranks, torch 2.7.1: all_reduce raises 'Cannot use ReduceOp.AVG with Gloo', "
    "reduce_scatter_tensor returns the sum without a word; pytorch#149781, #162338; right in 2.11 and 2.13",
    module="torch.distributed",
    verl=">=0.7.1,<0.10",
    torch=">=2.7",
    anchor=Anchor(
        target="all_reduce",
        fragments=("group.allreduce([tensor], opts)",),
        # Upstream's cure is in C++, which no anchor sees: the version in `when` stands for it.
        fixed=lambda source: "ReduceOp.AVG" in source,
    ),
    when=lambda settings: settings.device == "cpu" and _averages_wrongly(),
    apply=_apply,
)
