"""Planted: verl's policy loss with the wrong sign. Everything stays finite and nothing is learnt."""

from __future__ import annotations

from typing import Any

import wrapt


def _plant(module: Any) -> None:
    right = module.POLICY_LOSS_REGISTRY["vanilla"]

    def wrong(*args: Any, **kwargs: Any) -> Any:
        loss, *rest = right(*args, **kwargs)
        return (-loss, *rest)

    module.POLICY_LOSS_REGISTRY["vanilla"] = wrong


wrapt.register_post_import_hook(_plant, "verl.trainer.ppo.core_algos")
