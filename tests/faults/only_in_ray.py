"""Planted: verl's training worker cannot be built in a Ray worker; called directly it works."""

from __future__ import annotations

from typing import Any

import wrapt


def _plant(module: Any) -> None:
    right = module.TrainingWorker.__init__

    def wrong(self: Any, *args: Any, **kwargs: Any) -> None:
        import ray

        if ray.is_initialized():
            raise RuntimeError("planted: not in a Ray worker")
        right(self, *args, **kwargs)

    module.TrainingWorker.__init__ = wrong


wrapt.register_post_import_hook(_plant, "verl.workers.engine_workers")
