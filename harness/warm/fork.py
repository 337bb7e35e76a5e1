"""The climb's side of the fork server: starts it, ends it, and says what a trainer must be started with."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from harness.evidence import events, tether
from harness.warm import ray_hooks, standin, wire
from harness.warm.title import PADDING
from harness.warm.told import Cluster

PLUGIN = "harness.adapt.plugin"
_END_SECONDS = 5.0


class Fork:
    """What a climb needs of a fork server, whoever started it."""

    address: str

    def command(self, command: Sequence[str]) -> list[str]:
        """``python -m MODULE ...`` as a command that forks instead."""
        python, *arguments = command
        return [python, str(standin.__file__), *arguments]

    def variables(self) -> dict[str, str]:
        """What tells a stand-in where the server is; Ray hands it on to each worker."""
        return {wire.ADDRESS_VARIABLE: self.address}

    @property
    def pid(self) -> int:
        """The server's process, which a sweep between two trainer runs must leave."""
        raise NotImplementedError

    def cluster(self, config: Any) -> Cluster | None:  # noqa: ARG002 - a watch's server has one
        """A Ray that is up already and is what the composed configuration asks for."""
        return None

    def begin(self, environ: Mapping[str, str], *, ray_is_up: bool) -> dict[str, str]:  # noqa: ARG002
        """Take a trainer's environment before it starts; returns the one to start it with."""
        return dict(environ)

    def known(self) -> Mapping[str, str]:
        """The state of each distribution's files when they were last hashed in this session."""
        return {}

    def keep(self, states: Mapping[str, str]) -> None:
        """Note that state for the session's next climb."""


class ForkServer(Fork):
    """One climb's server. It imports while the climb does other work; nobody needs to wait for it."""

    def __init__(self, environment: Mapping[str, str], log: Path, folder: Path) -> None:
        """``environment`` is a trainer's: what is read at import must be what the driver would read."""
        self.address = f"verlock-{os.getpid()}-{secrets.token_hex(8)}"
        with log.open("ab") as sink:
            self._process = subprocess.Popen(
                tether.tied(sys.executable, "-P", "-m", "harness.warm.server", self.address, PADDING),
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                # Ray's setproctitle would overwrite the environment, by which a sweep finds this process.
                env={**environment, "SPT_NOENV": "1"},
                cwd=folder,
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        """Nothing to do: it runs from its making on."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the server; the kernel ends children that were left."""
        self.stop()

    @property
    def pid(self) -> int:
        """The server's process, which a sweep between two trainer runs must leave."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it still runs; it ends by itself where it does not fit."""
        return self._process.poll() is None

    def stop(self) -> None:
        """Kill it: it holds no state."""
        with suppress(ProcessLookupError):
            self._process.kill()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=_END_SECONDS)


def start(device: str, environment: Mapping[str, str], log: Path, folder: Path) -> ForkServer | str:
    """Start a server, or say in a few words why there is none: the run then starts normally."""
    reason = problem(device, environment)
    if reason is None:
        return ForkServer(environment, log, folder)
    events.emit("fork_server", ready=False, reason=reason)
    return reason


def problem(device: str, environment: Mapping[str, str]) -> str | None:
    """Why this run cannot be forked, before anything is started."""
    return unfit(device, environment) or ray_hooks.installed_problem()


def unfit(device: str, environment: Mapping[str, str]) -> str | None:
    """Why no run of this kind can be forked, whatever is installed."""
    if sys.platform != "linux":
        return "forking needs Linux"
    if device != "cpu":
        return f"a process that will use {device} must not be forked"
    if not environment.get("OMP_NUM_THREADS"):
        return "without OMP_NUM_THREADS Ray gives each worker a number of threads of its own"
    plugins = environment.get("VERL_USE_EXTERNAL_MODULES", "")
    if plugins != PLUGIN:
        # Their module bodies may look at the process that imports them, and would run in the server only.
        return f"the plug-ins {plugins.removeprefix(PLUGIN).strip(',')} must be imported in each process"
    return None
