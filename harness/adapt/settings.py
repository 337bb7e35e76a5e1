"""What a climb tells the plug-in, through environment variables that Ray hands to each worker.

verl imports the plug-in with no arguments, in processes that the harness does not start itself, so
the environment is the only channel that reaches them all.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal, get_args

from harness.adapt.contract.terms import Terms
from harness.adapt.stops import place as stops

# verl's own name for it; its loggers read it at import.
LOG_LEVEL = "VERL_LOGGING_LEVEL"
Device = Literal["cpu", "cuda", "mps"]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The plug-in's settings.

    ``device`` is where training runs, ``rollout_device`` where the ``hf`` rollout generates.
    ``attention`` is the ``attn_implementation`` that replaces a hard-coded one.
    ``without_patches`` are patches left out by name, for people who are changing verl itself.
    """

    device: Device = "cpu"
    rollout_device: Device = "cpu"
    attention: str = "sdpa"
    without_patches: frozenset[str] = frozenset()
    stop: str = ""
    """Where the processes stop (harness/adapt/stops), as text; nowhere if empty."""
    log_level: str = ""
    """Of verl's loggers: a name of harness.adapt.logs.LEVELS; verl's own choice if empty."""
    terms: Terms | None = None
    """What is forbidden and counted; without them a process runs at its full speed."""

    def environment(self) -> dict[str, str]:
        """The variables that carry these settings, with verl's own ones for the same device."""
        variables = {
            "VERLOCK_DEVICE": self.device,
            "VERLOCK_ROLLOUT_DEVICE": self.rollout_device,
            "VERLOCK_ATTENTION": self.attention,
            "VERLOCK_WITHOUT_PATCHES": ",".join(sorted(self.without_patches)),
            "VERLOCK_TERMS": self.terms.text() if self.terms else "",
            "VERL_USE_EXTERNAL_MODULES": "harness.adapt.plugin",
        }
        variables |= {stops.VARIABLE: self.stop} if self.stop else {}
        variables |= {LOG_LEVEL: self.log_level.upper()} if self.log_level else {}
        if self.device == "cpu":
            # EngineRegistry knows fsdp and fsdp2 for cuda and npu only (verl/workers/engine/base.py);
            # the engines themselves take their device from the platform.
            variables |= {
                "VERL_PLATFORM": "cpu",
                "VERL_ENGINE_DEVICE": "cuda",
                "VERL_ENGINE_VENDOR": "nvidia",
            }
        return variables


def _device(name: str) -> Device:
    value = os.environ.get(name, "cpu")
    if value not in get_args(Device):
        message = f"{name}={value!r} is none of {', '.join(get_args(Device))}"
        raise ValueError(message)
    return value  # type: ignore[return-value]  # checked against the literal above


def from_environment() -> Settings:
    """Read the settings of this process; without any, a CPU and ``sdpa``."""
    without = os.environ.get("VERLOCK_WITHOUT_PATCHES", "")
    terms = os.environ.get("VERLOCK_TERMS", "")
    return Settings(
        device=_device("VERLOCK_DEVICE"),
        rollout_device=_device("VERLOCK_ROLLOUT_DEVICE"),
        attention=os.environ.get("VERLOCK_ATTENTION", "sdpa"),
        without_patches=frozenset(name for name in without.split(",") if name),
        terms=Terms.parse(terms) if terms else None,
    )
