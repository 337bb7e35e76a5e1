"""A climb within a watch: it forks from the watch's server, and takes over a Ray that is up already."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.evidence.files import replace_text
from harness.warm import wire
from harness.warm.fork import Fork
from harness.warm.told import Cluster, Told

_SECONDS = 30.0
# `ray.init` looks for a token only where it starts Ray itself or finds one by itself.
_AUTHENTICATED = {"RAY_AUTH_MODE": "token"}


class Joined(Fork):
    """The watch's fork server, for one climb."""

    def __init__(self, told: Told) -> None:
        """The address is in the environment, as for every process that may fork."""
        self._told = told
        self._cluster = told.cluster
        self.address = os.environ[wire.ADDRESS_VARIABLE]

    @property
    def pid(self) -> int:
        """The server's process."""
        return self._told.server

    def cluster(self, config: Any) -> Cluster | None:
        """The Ray that is up, for the first trainer that it fits: a second one would meet its actors."""
        if self._cluster is None or not self._cluster.fits(config):
            return None
        cluster, self._cluster = self._cluster, None
        return cluster

    def begin(self, environ: Mapping[str, str], *, ray_is_up: bool) -> dict[str, str]:
        """Tell the server what workers get whose Ray is older than this trainer."""
        with wire.connect(self.address, timeout=_SECONDS) as connection:
            wire.send(connection, {wire.RUN: dict(environ) if ray_is_up else {}})
            if wire.receive(connection) is None:
                message = "the fork server ended"
                raise ConnectionError(message)
        return {**environ, **(_AUTHENTICATED if ray_is_up else {})}

    def known(self) -> dict[str, str]:
        """What an earlier climb of the watch hashed."""
        path = Path(self._told.known)
        return dict(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else {}

    def keep(self, states: Mapping[str, str]) -> None:
        """Hashing torch and Ray takes 1.2 s; whether they were written to since, 20 ms."""
        replace_text(
            Path(self._told.known), json.dumps(dict(states)), what="keep the state of the installation"
        )
