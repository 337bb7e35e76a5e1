"""A debugger that waits in a worker, on an address of this machine alone: a Ray worker has no terminal."""

from __future__ import annotations

import pdb  # noqa: T100 - this is the debugger
import socket
import sys
from contextlib import suppress
from types import FrameType
from typing import Any

from harness.adapt.stops.place import Place
from harness.evidence import events

HOST = "127.0.0.1"
_KIND = "debugger"


def wait(place: Place, frame: FrameType) -> None:
    """Say where, wait until somebody connects, and stop in ``frame``."""
    at = f"{place.file}:{place.line}"
    if place.tool == "pdb":
        _pdb(at, frame)
    else:
        _debugpy(at, frame)


def _pdb(at: str, frame: FrameType) -> None:
    with socket.create_server((HOST, 0)) as server:
        port = server.getsockname()[1]
        events.emit(_KIND, tool="pdb", address=f"{HOST}:{port}", at=at, connect=f"nc {HOST} {port}")
        connection, _address = server.accept()
    Session(connection).set_trace(frame)


def _debugpy(at: str, frame: FrameType) -> None:
    import debugpy  # noqa: T100

    host, port = debugpy.listen((HOST, 0))  # noqa: T100
    events.emit(_KIND, tool="debugpy", address=f"{host}:{port}", at=at, connect=f"attach to {host}:{port}")
    debugpy.wait_for_client()  # noqa: T100
    # As debugpy.breakpoint() does, but in the caller's frame and not in this one.
    import pydevd

    pydevd.settrace(
        suspend=True, trace_only_current_thread=True, patch_multiprocessing=False, stop_at_frame=frame
    )


class Session(pdb.Pdb):
    """pdb over a connection. When it ends, by ``continue``, ``quit`` or a cut, the run goes on."""

    def __init__(self, connection: socket.socket) -> None:
        """Take the connection over."""
        self.connection = connection
        # Two streams: one that is read and written forgets what it has read ahead.
        said = connection.makefile("r", encoding="utf-8", errors="replace", newline="\n")
        told = connection.makefile("w", encoding="utf-8", errors="replace", buffering=1, newline="\n")
        super().__init__(stdin=said, stdout=told, nosigint=True, readrc=False)
        self.use_rawinput = False

    def interaction(self, frame: FrameType | None, traceback: Any) -> None:
        """Talk; where the other side has gone without a word, go on."""
        try:
            super().interaction(frame, traceback)
        except (OSError, ValueError):  # ValueError: a stream of ours that was closed
            self.do_quit("")

    def do_continue(self, arg: str) -> Any:
        """Let the run go on; where no breakpoint is left, the connection ends."""
        result = super().do_continue(arg)
        if not self.breaks:
            self._close()
        return result

    do_c = do_cont = do_continue

    def do_quit(self, arg: str) -> Any:  # noqa: ARG002 - cmd calls it with one
        """Leave the debugger, not the run."""
        self.clear_all_breaks()
        sys.settrace(None)
        self.set_continue()
        self._close()
        return True

    do_q = do_exit = do_quit

    def do_EOF(self, arg: str) -> Any:  # noqa: N802 - cmd's own name
        """Go on when the other side has gone."""
        return self.do_quit(arg)

    def _close(self) -> None:
        with suppress(OSError):  # the other side may have gone before
            self.connection.shutdown(socket.SHUT_RDWR)
        self.connection.close()
