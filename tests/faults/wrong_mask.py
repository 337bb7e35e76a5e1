"""Planted: losses are averaged over padding too, as if every response had full length."""

from __future__ import annotations

from typing import Any

import torch
import wrapt


def _plant(module: Any) -> None:
    right = module.agg_loss

    def wrong(loss_mat: Any, loss_mask: Any, *args: Any, **kwargs: Any) -> Any:
        return right(loss_mat, torch.ones_like(loss_mask), *args, **kwargs)

    module.agg_loss = wrong


wrapt.register_post_import_hook(_plant, "verl.trainer.ppo.core_algos")
