"""Planted: the policy loss is NaN, as after an overflow or a division by zero."""

from __future__ import annotations

from typing import Any

import wrapt


def _plant(module: Any) -> None:
    right = module.agg_loss

    def wrong(*args: Any, **kwargs: Any) -> Any:
        return right(*args, **kwargs) * float("nan")

    module.agg_loss = wrong


wrapt.register_post_import_hook(_plant, "verl.trainer.ppo.core_algos")
