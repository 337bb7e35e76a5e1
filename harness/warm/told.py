"""What a watch tells its climb, in one environment variable: the run's name, and a Ray that is up already."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

VARIABLE = "VERLOCK_WATCH"


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """A Ray of one node that waits for its driver."""

    address: str
    folder: str
    cpus: int
    gpus: int

    def fits(self, config: Any) -> bool:
        """Whether the composed configuration asks for this Ray and for nothing else of it."""
        wanted = {key: value for key, value in config.ray_kwargs.ray_init.items() if value is not None}
        wanted.pop("include_dashboard", None)
        environment = wanted.pop("runtime_env", None) or {}
        asked = {key: value for key, value in environment.items() if value is not None}
        return not asked and wanted == {"num_cpus": self.cpus, "num_gpus": self.gpus}

    def words(self) -> dict[str, object]:
        """The settings of a trainer that connects to it."""
        init = "ray_kwargs.ray_init"
        return {f"+{init}.address": self.address, f"{init}.num_cpus": None, f"+{init}.num_gpus": None}


@dataclass(frozen=True, kw_only=True)
class Told:
    """``server`` is the fork server's pid, ``known`` the file in which a watch's climbs keep their checks."""

    run_id: str
    server: int
    known: str
    cluster: Cluster | None = None

    def variables(self) -> dict[str, str]:
        """The variable."""
        return {VARIABLE: json.dumps(asdict(self))}


def from_watch(environ: Mapping[str, str] = os.environ) -> Told | None:
    """What this climb was told; none outside of a watch."""
    text = environ.get(VARIABLE)
    if not text:
        return None
    found = json.loads(text)
    cluster = found.pop("cluster")
    return Told(**found, cluster=Cluster(**cluster) if cluster else None)
