"""The fork server: ``python -m harness.warm.server ADDRESS CLIMB-PID``, one for each climb.

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
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from harness.adapt import process
from harness.evidence import events
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
        self._changes = variables.changed({_OURS: "1", **before}, os.environ)
        self._children: dict[int, _Child] = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ)

    def serve(self) -> None:
        """Serve until the climb ends: it is tied to this process."""
        while True:
            for key, _ready in self._selector.select():
                if key.fileobj is self._listener:
                    self._accept()
                elif key.data is not None:
                    self._changed(key.data, ended=key.fd == key.data.ended)

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
            request = Request(**body)
            began = time.monotonic()
            problem = self._problem(request, streams) or self._touched(request)
            if problem:
                wire.send(connection, {"declined": problem})
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
        self._selector.register(child.ended, selectors.EVENT_READ, child)
        self._selector.register(connection, selectors.EVENT_READ, child)
        wire.send(connection, {"pid": pid})

    def _forget(self, connection: socket.socket) -> None:
        """In a child: close what is the server's."""
        self._selector.close()
        self._listener.close()
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


def _import() -> tuple[list[str], list[dict[str, Any]]]:
    """Import all, with the plug-in's events kept aside: this process runs no verl, so it proves nothing."""
    if early := sorted({"ray", "torch", "verl"} & sys.modules.keys()):
        message = f"{', '.join(early)} came with the server's own modules, before its guards"
        raise RuntimeError(message)
    with TemporaryDirectory(prefix="vl-") as folder:
        aside = Path(folder) / "events.jsonl"
        kept = os.environ.get(events.FILE_VARIABLE)
        os.environ[events.FILE_VARIABLE] = str(aside)
        try:
            process.only_forks = True
            ray_hooks.before_imports()
            missing = preload.load()
        finally:
            if kept is None:
                del os.environ[events.FILE_VARIABLE]
            else:
                os.environ[events.FILE_VARIABLE] = kept
        return missing, [event for event in events.read(aside) if event["kind"] == "patch"]


def main(address: str) -> int:
    """Import, check, serve."""
    began = time.monotonic()
    if problem := ray_hooks.installed_problem():
        events.emit("fork_server", ready=False, reason=problem)
        return 1
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind("\0" + address)
        listener.listen(64)
        before = {name: value for name, value in os.environ.items() if name != _OURS}
        missing, outcomes = _import()
        words = list(sys.orig_argv)
        ray_hooks.own_title("fork server")
        title.write([word for word in words if word != title.PADDING])
        problem = ray_hooks.imported_problem()
        if not problem and preload.threads() != 1:
            problem = f"the imports started {preload.threads() - 1} threads"
        if problem:
            events.emit("fork_server", ready=False, reason=problem)
            return 1
        gc.collect()
        gc.freeze()  # what is frozen is not touched by a collection, so its pages stay shared
        events.emit(
            "fork_server", ready=True, seconds=round(time.monotonic() - began, 3), not_imported=missing
        )
        Server(listener, outcomes, before).serve()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
