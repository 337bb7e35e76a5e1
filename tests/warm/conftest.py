"""A real fork server, and programs that are run as its children."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from harness.adapt.settings import Settings
from harness.evidence import events
from harness.evidence.processes import RUN_VARIABLE
from harness.warm.fork import ForkServer

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forking needs Linux")
HERE = Path(__file__).parent
READY_SECONDS = 180


@dataclass(frozen=True, kw_only=True)
class Served:
    """A server and what its children are started with."""

    fork: ForkServer
    environment: dict[str, str]
    events: Path

    def start(self, *arguments: str, cwd: Path | None = None, **variables: str) -> subprocess.Popen[str]:
        """A stand-in for ``python -m ARGUMENTS``, not waited for."""
        return subprocess.Popen(
            self.fork.command([sys.executable, "-m", *arguments]),
            env={**self.environment, **self.fork.variables(), **variables},
            cwd=cwd,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def probe(self, *arguments: str, cwd: Path | None = None, **variables: str) -> dict[str, Any]:
        """What :mod:`probe` saw in a forked child."""
        child = self.start("probe", *arguments, cwd=cwd, **variables)
        stdout, stderr = child.communicate(timeout=READY_SECONDS)
        assert child.returncode == 0, stderr
        assert not stderr
        return dict(json.loads(stdout))


def environment(folder: Path) -> dict[str, str]:
    """A trainer's variables."""
    return {
        **os.environ,
        **Settings().environment(),
        "OMP_NUM_THREADS": "1",
        "PYTHONUNBUFFERED": "1",
        "PYTHONPATH": str(HERE),
        "HF_HUB_OFFLINE": "1",
        RUN_VARIABLE: f"warm-{folder.name}-{os.getpid()}",
        events.FILE_VARIABLE: str(folder / "events.jsonl"),
    }


def serve(folder: Path) -> Iterator[Served]:
    """Start a server in ``folder``, wait until it has imported all, and end it after the test."""
    wanted = environment(folder)
    with ForkServer(wanted, folder / "server.log", folder) as fork:
        deadline = time.monotonic() + READY_SECONDS
        path = folder / "events.jsonl"
        while not any(event["kind"] == "fork_server" for event in events.read(path)):
            assert fork.alive, (folder / "server.log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert [e["ready"] for e in events.read(path)] == [True]
        yield Served(fork=fork, environment=wanted, events=path)


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One server for all tests that leave it alive."""
    yield from serve(tmp_path_factory.mktemp("served"))


@pytest.fixture
def own_served(tmp_path: Path) -> Iterator[Served]:
    """A server for a test that kills it."""
    yield from serve(tmp_path)
