"""The nodes of a Ray cluster: waited for, each checked on its own hardware, watched while the job runs."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import EnvironmentDiffersError, NodeLostError, Problem

# A pod that has to pull gigabytes first is there within this time.
PATIENCE_SECONDS = 600.0
_POLL_SECONDS = 5.0
_ANSWER_SECONDS = 5.0
# Ray and gloo notice a lost peer by themselves, mostly within seconds; NCCL may wait for half an hour.
_GRACE_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True)
class Node:
    """One node, by Ray's id and the address that it has on the network."""

    id: str
    address: str
    port: int
    """Where its raylet listens."""
    name: str

    def answers(self) -> bool:
        """Whether its raylet takes a connection: Ray calls a killed node alive for half a minute."""
        try:
            with socket.create_connection((self.address, self.port), timeout=_ANSWER_SECONDS):
                return True
        except OSError:
            return False

    def __str__(self) -> str:
        return f"{self.name} ({self.address})"


@contextmanager
def connected() -> Iterator[None]:
    """This process as a driver of the cluster in RAY_ADDRESS."""
    import ray

    ray.init(address="auto", namespace="verlock", log_to_driver=False, logging_level="warning")
    try:
        yield
    finally:
        ray.shutdown()


def alive() -> list[Node]:
    """The nodes that are there now, in a fixed order."""
    import ray

    return sorted(
        (
            Node(
                id=n["NodeID"],
                address=n["NodeManagerAddress"],
                port=n["NodeManagerPort"],
                name=n["NodeManagerHostname"],
            )
            for n in ray.nodes()
            if n["Alive"]
        ),
        key=lambda node: node.address,
    )


def wait(number: int, tell: Callable[[str], None], *, patience: float = PATIENCE_SECONDS) -> list[Node]:
    """The nodes, as soon as there are ``number`` of them, and none that Ray still counts and that is gone.

    A killed worker is alive to Ray for half a minute; verl's placement group would wait for it.

    Raises:
        NodeLostError: fewer came in time, or one that is gone stayed.
    """
    deadline, seen = time.monotonic() + patience, ""
    while True:
        nodes = alive()
        silent = [node for node in nodes if not node.answers()]
        there = [node for node in nodes if node not in silent]
        if len(there) >= number and not silent:
            return there
        said = f"{len(there)} of {number} nodes are there"
        said += "".join(f"; {node} does not answer" for node in silent)
        if said != seen:
            seen = said
            tell(said)
        if time.monotonic() > deadline:
            raise NodeLostError(
                f"{len(there)} of {number} nodes came within {patience:.0f} s",
                where=", ".join(map(str, there)) or "no node at all",
                why=f"Ray counts {', '.join(map(str, silent))}, which does not answer"
                if silent
                else "a node that fails its own check does not start Ray: its log says what differs",
                todo="read the logs of the nodes that are missing",
            )
        time.sleep(1.0)


def commands(profile: str, expect: str, runs: Path) -> list[list[str]]:
    """What is run on each node: the fingerprint against the expected one, then the rung ``env``."""
    climb = ["climb", "--profile", profile, "--to", "env", "--runs", str(runs / "nodes")]
    return [["fingerprint", "--profile", profile, "--expect", expect], climb]


def check(nodes: Sequence[Node], asked: Sequence[Sequence[str]]) -> None:
    """Run ``verlock`` with each of ``asked`` on every node, all nodes at once.

    Raises:
        EnvironmentDiffersError: with every node on which one fails, and what it said.
        NodeLostError: a node went away meanwhile.
    """
    import ray
    from ray.exceptions import RayError
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = ray.remote(num_cpus=0, max_retries=0)(run_here)
    there = {
        node: here.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node.id, soft=False)).remote(
            asked
        )
        for node in nodes
    }
    problems = []
    for node, answer in there.items():
        try:
            said = ray.get(answer)
        except RayError as error:
            if not node.answers():
                raise NodeLostError(
                    f"node {node} left before it was checked", why=str(error), todo="submit the job again"
                ) from None
            said = f"the check could not run there: {error}"
        if said is not None:
            problems.append(
                Problem(
                    what=f"node {node} is not what was proven",
                    where=str(node),
                    why=said,
                    todo="start the image by its digest on this node",
                )
            )
    if problems:
        raise EnvironmentDiffersError(*problems)


def run_here(asked: Sequence[Sequence[str]]) -> str | None:
    """Run each command of verlock in this process's environment; what the first that fails said, or none."""
    for words in asked:
        done = subprocess.run(
            [sys.executable, "-m", "harness", *words], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            said = "\n".join((done.stdout + done.stderr).strip().splitlines()[-12:])
            return f"`verlock {' '.join(words)}` ended with exit code {done.returncode}: {said}"
    return None


class Watch:
    """Looks whether all nodes are still there; a job that waits for a lost one is ended after a while."""

    def __init__(self, nodes: Sequence[Node], end: Callable[[], Any]) -> None:
        """``end`` is called once, some time after a node was lost, if the watch still goes on."""
        self._nodes = nodes
        self._end = end
        self._over = threading.Event()
        self._lost: list[Node] = []
        self._thread = threading.Thread(target=self._look, name="verlock-nodes", daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._over.set()
        self._thread.join()

    def lost(self) -> list[Node]:
        """The nodes that were there at the beginning and are not now."""
        there = {node.id for node in alive()}
        return [node for node in self._nodes if node.id not in there or not node.answers()]

    def _look(self) -> None:
        while not self._over.wait(_POLL_SECONDS):
            if self.lost():
                if not self._over.wait(_GRACE_SECONDS):
                    self._end()
                return
