"""A forked child's own proof that the plug-in is active in it.

The plug-in's module body ran in the server and does not run again, so its event line would be missing.
What the child reports is looked up in verl's registries and in verl's patched modules, in the child.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from types import FunctionType, ModuleType
from typing import Any

from harness.adapt import patch as patching
from harness.adapt import process
from harness.adapt.contract import ledger, violation
from harness.adapt.patch import Patch
from harness.adapt.patches import PATCHES
from harness.adapt.plugin import ROLLOUTS
from harness.adapt.settings import Settings, from_environment
from harness.evidence import events

_inherited: list[Mapping[str, Any]] = []


def repeat() -> None:
    """The proof again, for a climb that was forked before its own record was there to take it."""
    prove(_inherited)


def prove(outcomes: Sequence[Mapping[str, Any]], checked: Mapping[str, Any] | None = None) -> bool:
    """Record this process's activation, or what is missing; ``outcomes``: the server's ``patch`` events.

    ``checked``: the server's check of the environment before it forked this process.
    """
    _inherited[:] = outcomes
    patching._acted.clear()  # noqa: SLF001 - where a patch acts is recorded once in each process
    settings = from_environment()
    problems = list(_problems(settings, outcomes))
    if problems:
        events.emit("activation_missing", problems=problems)
        return False
    process.only_forks = False
    if settings.terms is not None:
        violation.forget()
        ledger.begin(settings.terms)
    for outcome in outcomes:
        events.emit("patch", **{key: outcome[key] for key in outcome if key in {"patch", "outcome"}})
    events.emit(
        "activated",
        device=settings.device,
        patches=[patch.name for patch in PATCHES if patch.needed(settings)],
        forked=True,
        environment=checked,
    )
    return True


def _problems(settings: Settings, outcomes: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    from verl.utils.device import get_device_name

    if get_device_name() != settings.device:
        yield f"verl's device is {get_device_name()}, not {settings.device}"
    replicas = sys.modules.get("verl.workers.rollout.replica")
    if replicas is not None:
        for name in ROLLOUTS:
            if name not in replicas.RolloutReplicaRegistry._registry:  # noqa: SLF001 - verl has no public way
                yield f"the rollout {name} is not registered"
    said = {str(outcome["patch"]): outcome["outcome"] for outcome in outcomes}
    for patch in PATCHES:
        module = sys.modules.get(patch.module)
        if module is None or not patch.needed(settings):
            continue  # its hook waits for the import
        if patch.name not in said:
            yield f"patch {patch.name} has no outcome"
        elif said[patch.name] == "applied" and not is_in(module, patch):
            yield f"patch {patch.name} was applied but is not in {patch.module}"


def is_in(module: ModuleType, patch: Patch) -> bool:
    """Whether the module, or a class of it, holds a function that the patch's own module defined."""
    home = patch.apply.__globals__
    holders = [vars(module), *(vars(item) for item in vars(module).values() if isinstance(item, type))]
    return any(
        isinstance(item, FunctionType) and item.__globals__ is home
        for holder in holders
        for item in holder.values()
    )
