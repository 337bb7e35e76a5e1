"""The fork server: ``python -m harness.warm.server ADDRESS``, one for each climb.

It imports once, then forks a child for each stand-in that asks. It has one thread: a child of a process
with more gets locks that nobody will ever open. A child whose stand-in is gone is killed with its group.
"""

from __future__ import annotations

import gc
import os
import selectors
import signal
import socket
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from harness.evidence import events
from harness.evidence.processes import RUN_VARIABLE
from harness.fingerprint import guard
from harness.warm import preload, ray_hooks, title, variables, wire
from harness.warm.child import Request, become

_REQUEST_SECONDS = 10.0
# Set by the climb for the server alone (harness/warm/fork.py).
_OURS = "SPT_NOENV"


@dataclass(frozen=True, kw_only=True)
class _Child:
    pid: int
    ended: int
    """A pidfd: readable when the child has ended."""
    stand_in: socket.socket


class Server:
    """Listens, forks, waits."""

    def __init__(
        self, listener: socket.socket, outcomes: list[dict[str, Any]], before: dict[str, str]
    ) -> None:
        """``outcomes``: the patches' events of the imports; ``before``: the environment before them."""
        self._listener = listener
        self._outcomes = outcomes
        self._before = before
        self.imported()
        self._run: dict[str, str] = {}
        self._children: dict[int, _Child] = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ, self._accept)

    def imported(self) -> None:
        """Note what the imports so far have changed in the environment."""
        self._changes = variables.changed({_OURS: "1", **self._before}, os.environ)

    def serve(self) -> None:
        """Serve until the climb ends: it is tied to this process."""
        while True:
            for key, _ready in self._selector.select():
                key.data()

    def _accept(self) -> None:
        connection, _address = self._listener.accept()
        streams: list[int] = []
        try:
            if wire.peer(connection)[1] != os.getuid():  # an abstract address has no file permissions
                return
            connection.settimeout(_REQUEST_SECONDS)
            message = wire.receive(connection)
            if message is None:
                return
            body, streams = message
            if (
                wire.RUN in body
            ):  # what Ray's workers are told from now on: a kept Ray has an older environment
                self._run = dict(body[wire.RUN])
                wire.send(connection, {wire.RUN: True})
                return
            request = self._of_run(Request(**body))
            began = time.monotonic()
            problem = self._problem(request, streams) or self._touched(request)
            if problem:
                told = self._run if request.kind == "worker" else {}
                wire.send(connection, {"declined": problem, "environment": told})
                return
            if request.environment.get(guard.VARIABLE):
                checked = {"forked": True, "seconds": round(time.monotonic() - began, 3)}
                request = replace(request, checked=checked)
            self._fork(request, streams, connection)
        except (OSError, ValueError, TypeError, KeyError) as error:
            sys.stderr.write(f"fork server: {type(error).__name__}: {error}\n")
        finally:
            for stream in streams:
                os.close(stream)
            if not any(child.stand_in is connection for child in self._children.values()):
                connection.close()

    def _of_run(self, request: Request) -> Request:
        """A worker of a kept Ray with the environment of the run that it is for; Ray's own variables stay."""
        if request.kind != "worker":
            return request
        told = {name: value for name, value in self._run.items() if not name.startswith("RAY_")}
        return replace(request, environment=request.environment | told)

    def _problem(self, request: Request, streams: list[int]) -> str | None:
        if len(streams) != 3:
            return f"{len(streams)} streams came with the request, not 3"
        if preload.threads() != 1:
            return f"the fork server has {preload.threads()} threads"
        wanted = dict(request.environment)
        if request.kind == "script":
            if problem := ray_hooks.script_problem(request.environment, request.words):
                return problem
            wanted.pop(
                "LD_PRELOAD", None
            )  # Ray gives its services jemalloc, to save memory; forked, they share
        if request.kind == "worker":
            if problem := ray_hooks.worker_problem(request.arguments):
                return problem
            wanted |= ray_hooks.worker_variables(request.arguments)
        if len(wanted.get(RUN_VARIABLE, "")) != len(self._before.get(RUN_VARIABLE, "")):
            return f"there is no room to show its {RUN_VARIABLE}"
        differing = variables.differing(self._before, wanted)
        return f"it needs other values of {', '.join(differing)}" if differing else None

    @staticmethod
    def _touched(request: Request) -> str | None:
        """Ray's own services use no verl."""
        return None if request.kind == "script" else guard.touched(request.environment)

    def _fork(self, request: Request, streams: list[int], connection: socket.socket) -> None:
        if sys.platform != "linux":
            raise OSError("the fork server is for Linux")
        server = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._forget(connection)
            wanted = variables.after_imports(request.environment, self._before, self._changes)
            request = replace(request, environment=wanted)
            become(request, streams, self._outcomes, server)
        child = _Child(pid=pid, ended=os.pidfd_open(pid), stand_in=connection)
        self._children[pid] = child
        for source, ended in ((child.ended, True), (connection, False)):
            self._selector.register(source, selectors.EVENT_READ, partial(self._changed, child, ended=ended))
        wire.send(connection, {"pid": pid})

    def _forget(self, connection: socket.socket | None = None) -> None:
        """In a child: close what is the server's."""
        self._selector.close()
        self._listener.close()
        if connection is not None:
            connection.close()
        for child in self._children.values():
            child.stand_in.close()
            os.close(child.ended)

    def _changed(self, child: _Child, *, ended: bool) -> None:
        """The child has ended, or its stand-in: both end."""
        if child.pid not in self._children:
            return
        if not ended:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            with suppress(ProcessLookupError):  # within the moment before it has a group of its own
                os.kill(child.pid, signal.SIGKILL)
        _pid, status = os.waitpid(child.pid, 0)
        del self._children[child.pid]
        self._selector.unregister(child.ended)
        self._selector.unregister(child.stand_in)
        os.close(child.ended)
        with suppress(OSError):
            wire.send(child.stand_in, {"status": status})
        child.stand_in.close()


def environment() -> dict[str, str]:
    """This process's environment as its children would have got it from their own parents."""
    return {name: value for name, value in os.environ.items() if name != _OURS}


def settle() -> str | None:
    """Make ready to fork, after the imports; why that cannot be."""
    ray_hooks.own_title("fork server")
    title.write([word for word in sys.orig_argv if word != title.PADDING])
    problem = ray_hooks.imported_problem()
    if not problem and preload.threads() != 1:
        problem = f"the imports started {preload.threads() - 1} threads"
    gc.collect()
    gc.freeze()  # what is frozen is not touched by a collection, so its pages stay shared
    return problem


def main(address: str) -> int:
    """Import, check, serve."""
    began = time.monotonic()
    if problem := ray_hooks.installed_problem():
        events.emit("fork_server", ready=False, reason=problem)
        return 1
    with wire.listen(address) as listener:
        before = environment()
        missing, outcomes = preload.apart({"ray", "torch", "verl"})
        problem = settle()
        if problem:
            events.emit("fork_server", ready=False, reason=problem)
            return 1
        events.emit(
            "fork_server", ready=True, seconds=round(time.monotonic() - began, 3), not_imported=missing
        )
        Server(listener, outcomes, before).serve()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
