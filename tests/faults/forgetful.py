"""A resume that forgets what VERLOCK_TEST_FORGET names: optimiser, weights, place in the data, or seed."""

from __future__ import annotations

import os
from pathlib import Path
from types import ModuleType
from typing import Any

import wrapt

FORGET = os.environ.get("VERLOCK_TEST_FORGET", "")


def forget(module: ModuleType) -> None:
    manager: Any = module.FSDPCheckpointManager
    if FORGET == "optimizer":
        manager.should_load_optimizer = property(lambda self: False)
    if FORGET == "model":
        manager.should_load_model = property(lambda self: False)
    if FORGET == "rows":
        import torchdata.stateful_dataloader as loader

        loader.StatefulDataLoader.load_state_dict = lambda self, state: None


def reseed(module: ModuleType) -> None:
    """The resumed run samples with another seed than the first one."""
    if FORGET == "seed" and Path(os.environ["VERL_FILE_LOGGER_PATH"]).parent.name == "resumed":
        original = module.derive_seed
        module.derive_seed = lambda *parts: original("another", *parts)  # type: ignore[attr-defined]


wrapt.register_post_import_hook(reseed, "harness.adapt.agent_loop")
wrapt.register_post_import_hook(forget, "verl.utils.checkpoint.fsdp_checkpoint_manager")
