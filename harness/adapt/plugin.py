"""What verl imports in each process: ``VERL_USE_EXTERNAL_MODULES=harness.adapt.plugin``.

verl raises an error from a module named there, unlike one from an entry point, which it swallows
(verl/__init__.py). The last line below is the proof that activation reached its end in this process.
"""

from __future__ import annotations

from functools import partial
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from harness.adapt import imports, logs, patch, process
from harness.adapt.patches import PATCHES
from harness.adapt.patches.device import register_engines
from harness.adapt.settings import from_environment
from harness.adapt.stops import install
from harness.evidence import events, stacks
from harness.fingerprint import guard

ROLLOUTS = ("hf", "mock")


def _replica(name: str) -> Any:
    from harness.adapt.rollout.replica import REPLICAS

    return REPLICAS[name]


def _register_replicas(module: ModuleType) -> None:
    for name in ROLLOUTS:
        module.RolloutReplicaRegistry.register(name, partial(_replica, name))


def _register_adapters(module: ModuleType) -> None:
    for name in ROLLOUTS:
        # verl has no public way to add one.
        module._ROLLOUT_REGISTRY[name, "async"] = "harness.adapt.rollout.adapter.ServerAdapter"  # noqa: SLF001


def _register_cpu() -> None:
    """Make a CPU known to verl: as a platform, or, before 0.9.1, as a device that its engines run on."""
    if find_spec("verl.plugin") is not None:
        import harness.adapt.platform  # noqa: F401 - registers itself
    else:
        patch.when_imported("verl.workers.engine.fsdp.transformer_impl", register_engines)


def activate() -> None:
    """Register platform and rollouts, install the patches, and leave a line in the run's events.

    First of all this process's environment is checked: where it differs, ``import verl`` raises.
    """
    imports.watch()
    stacks.register()
    checked = guard.check()
    install.install()
    logs.speak()
    settings = from_environment()
    if settings.device == "cpu":
        _register_cpu()
    # Late: the registries' modules import Ray's and verl's worker code, which not every process needs.
    patch.when_imported("verl.workers.rollout.replica", _register_replicas)
    patch.when_imported("verl.workers.rollout.base", _register_adapters)
    patch.install(PATCHES, settings)
    if settings.terms is not None:
        from harness.adapt.contract import guards, ledger

        guards.install(settings.terms)
        if not process.only_forks:
            ledger.begin(settings.terms)
    events.emit(
        "activated",
        device=settings.device,
        patches=[p.name for p in PATCHES if p.needed(settings)],
        environment=checked,
    )


activate()
