"""What verl imports in each process: ``VERL_USE_EXTERNAL_MODULES=harness.adapt.plugin``.

verl raises an error from a module named there, unlike one from an entry point, which it swallows
(verl/__init__.py). The last line below is the proof that activation reached its end in this process.
"""

from __future__ import annotations

from typing import Any

from harness.adapt import patch
from harness.adapt.patches import PATCHES
from harness.adapt.settings import from_environment
from harness.evidence import events

ROLLOUTS = ("hf", "mock")


def _replica(name: str) -> Any:
    from harness.adapt.rollout.replica import REPLICAS

    return REPLICAS[name]


def activate() -> None:
    """Register platform and rollouts, install the patches, and leave a line in the run's events."""
    import wrapt

    settings = from_environment()
    if settings.device == "cpu":
        import harness.adapt.platform  # noqa: F401 - registers itself
    for name in ROLLOUTS:
        # Late, because the registries' modules import Ray's and verl's worker code, which not every
        # process needs.
        wrapt.register_post_import_hook(
            lambda module, name=name: module.RolloutReplicaRegistry.register(name, lambda: _replica(name)),
            "verl.workers.rollout.replica",
        )
        wrapt.register_post_import_hook(
            lambda module, name=name: module._ROLLOUT_REGISTRY.update(  # noqa: SLF001 - verl has no public way
                {(name, "async"): "harness.adapt.rollout.adapter.ServerAdapter"}
            ),
            "verl.workers.rollout.base",
        )
    patch.install(PATCHES, settings)
    events.emit("activated", device=settings.device, patches=[p.name for p in PATCHES if p.when(settings)])


activate()
