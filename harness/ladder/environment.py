"""The environment variables of a trainer run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from harness.adapt.settings import Device, Settings
from harness.profiles.model import Profile

if TYPE_CHECKING:
    from harness.warm.fork import Fork

# A variable that points a run at another cluster.
_NEVER = frozenset({"RAY_ADDRESS", "RAY_JOB_CONFIG_JSON_ENV_VAR"})
# On a CPU the GPU is a logical one, and Ray checks this list against its own count ("Attempting to start
# raylet with 1 GPU, but CUDA_VISIBLE_DEVICES contains []").
_NEVER_ON_CPU = frozenset({"CUDA_VISIBLE_DEVICES"})

_ALWAYS = {
    # One thread a process: sums of several threads round differently from run to run, and two cores
    # are shared by five processes.
    "OMP_NUM_THREADS": "1",
    "PYTHONUNBUFFERED": "1",
    # Ray folds equal lines of different workers into one; a record wants each.
    "RAY_DEDUP_LOGS": "0",
    "RAY_COLOR_PREFIX": "0",
}


def variables(profile: Profile, settings: Settings, tied: Mapping[str, str]) -> dict[str, str]:
    """What the profile and the plug-in set, and what ties a process to its run (``record.environment()``).

    The user's own plug-ins are kept after ours.
    """
    own = settings.environment()
    theirs = [m for m in os.environ.get("VERL_USE_EXTERNAL_MODULES", "").split(",") if m]
    modules = [own["VERL_USE_EXTERNAL_MODULES"], *theirs]
    own["VERL_USE_EXTERNAL_MODULES"] = ",".join(dict.fromkeys(modules))
    return _ALWAYS | profile.environment_variables() | own | dict(tied)


def child(added: Mapping[str, str], device: Device) -> dict[str, str]:
    """This process's environment with ``added``, without what would lead a run on ``device`` astray."""
    never = _NEVER | (_NEVER_ON_CPU if device == "cpu" else frozenset())
    return {key: value for key, value in os.environ.items() if key not in never} | dict(added)


def trainer(
    ours: Mapping[str, str], folder: Path, device: Device, fork: Fork | None, *, ray_is_up: bool
) -> dict[str, str]:
    """What a driver is started with whose metrics go to ``folder``, forked or not."""
    added = {
        **ours,
        "VERL_FILE_LOGGER_PATH": str(folder / "metrics.jsonl"),
        "TENSORBOARD_DIR": str(folder / "tensorboard"),
    }
    if fork is None:
        return child(added, device)
    return fork.begin(child(added | fork.variables(), device), ray_is_up=ray_is_up)
