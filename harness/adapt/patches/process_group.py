"""The process group of a CPU run."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

from harness.adapt import names
from harness.adapt.anchors import Anchor
from harness.adapt.patch import Patch, acted
from harness.adapt.settings import Settings

NAME = names.PROCESS_GROUP_BACKEND


def _apply(module: ModuleType, _settings: Settings) -> None:
    original = module.initialize_global_process_group_ray

    @functools.wraps(original)
    def initialize(timeout_second: int | None = None, backend: str | None = None) -> Any:
        acted(NAME)
        return original(timeout_second=timeout_second, backend=backend or "cpu:gloo")

    module.initialize_global_process_group_ray = initialize  # type: ignore[attr-defined]


BACKEND = Patch(
    name=NAME,
    reason="verl joins 'cpu:gloo' and the device's backend; on a CPU that names the device twice",
    evidence="torch refuses 'cpu:gloo,cpu:gloo' (BackendConfig: Duplicate device type); measured, verl 0.9.1",
    module="verl.utils.distributed",
    verl=">=0.7.1,<0.10",
    anchor=Anchor(
        target="initialize_global_process_group_ray",
        fragments=("backend = backend or f'cpu:gloo,{get_device_name()}:{get_nccl_backend()}'",),
        fixed=lambda source: "cpu:gloo,{" not in source,
    ),
    when=lambda settings: settings.device == "cpu",
    apply=_apply,
)
