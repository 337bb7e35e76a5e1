"""Planted: each row carries a tensor of 64 MiB, as a picture's pixels do, through shared memory."""

from __future__ import annotations

from typing import Any

import torch
import wrapt


def _plant(module: Any) -> None:
    right = module.RLHFDataset.__getitem__

    def large(self: Any, item: int) -> Any:
        return {**right(self, item), "pixels": torch.ones(16 * 2**20)}

    module.RLHFDataset.__getitem__ = large


wrapt.register_post_import_hook(_plant, "verl.utils.dataset.rl_dataset")
