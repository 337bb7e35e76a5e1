"""Stands where a new interpreter would: asks the fork server for a child, and lives and dies with it.

``standin.py ARGUMENTS`` is what the raylet starts instead of Ray's ``setup_worker.py`` (a worker), and
``standin.py [-P] -m MODULE ARGUMENTS`` what stands for ``python [-P] -m MODULE`` (the driver, a climb).
The child gets this process's arguments, environment, working directory and standard streams. When no
server answers, or it declines, this process becomes the normal program, and says why.
``standin.py --script FILE ARGUMENTS`` is for the Python processes of Ray itself.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path
from types import FrameType

# The raylet starts this file as a script: its folder must not hide modules of other names.
if sys.path and Path(sys.path[0]) == Path(__file__).parent:
    del sys.path[0]

from harness.evidence import events
from harness.warm import wire

SCRIPT = "--script"
SETUP_WORKER_VARIABLE = "VERLOCK_SETUP_WORKER"
NORMALLY = "verlock: started normally, not forked"
_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PR_SET_PDEATHSIG = 1
_LIMITS = ("RLIMIT_NOFILE", "RLIMIT_CORE", "RLIMIT_NPROC")
# A driver may come while the server still imports; a worker never does.
_CONNECT_SECONDS = 5.0
_ANSWER_SECONDS = 120.0


def main(arguments: list[str]) -> None:
    """Run ``arguments`` in a forked child; ends as the child ends."""
    tie(os.getppid())
    signal.pthread_sigmask(signal.SIG_BLOCK, _FORWARDED)
    try:
        pid, connection = _ask(arguments)
    except (OSError, ConnectionError, ValueError) as error:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _FORWARDED)
        _normally(arguments, str(error))

    def forward(signum: int, _frame: FrameType | None) -> None:
        with suppress(ProcessLookupError):
            os.kill(pid, signum)

    for signum in _FORWARDED:
        signal.signal(signum, forward)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _FORWARDED)
    # The child holds copies of the streams; a reader of ours waits for the last copy to be closed.
    connection.settimeout(None)
    try:
        answer = wire.receive(connection)
    except (OSError, ValueError):
        answer = None
    _end_like(answer[0]["status"] if answer else None, pid)


def tie(parent: int) -> None:
    """Let the kernel kill this process when ``parent`` ends, whatever ends it."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(137)


def _ask(arguments: list[str]) -> tuple[int, socket.socket]:
    others = os.environ.get(wire.WORKERS_VARIABLE) if _is_worker(arguments) else None
    address = others or os.environ.get(wire.ADDRESS_VARIABLE)
    if not address:
        message = f"{wire.ADDRESS_VARIABLE} is not set"
        raise ConnectionError(message)
    connection = wire.connect(address, timeout=_CONNECT_SECONDS)
    request = {
        "arguments": arguments,
        "environment": dict(os.environ),
        "folder": str(Path.cwd()),
        "limits": {name: resource.getrlimit(getattr(resource, name)) for name in _LIMITS},
        "oom_score": int(Path("/proc/self/oom_score_adj").read_text(encoding="utf-8")),
    }
    wire.send(connection, request, streams=(0, 1, 2))
    connection.settimeout(_ANSWER_SECONDS)
    answer = wire.receive(connection)
    if answer is None:
        message = "the fork server ended"
        raise ConnectionError(message)
    if "declined" in answer[0]:
        os.environ.update(answer[0].get("environment", {}))
        raise ConnectionError(answer[0]["declined"])
    return int(answer[0]["pid"]), connection


def _is_worker(arguments: list[str]) -> bool:
    return arguments[:1] not in (["-m"], ["-P"], [SCRIPT])


def _end_like(status: int | None, pid: int) -> None:
    """Exit with the child's code, or die of its signal. Without a status the server is dead, and so is it."""
    if status is None:
        sys.stderr.write(f"the fork server died, and process {pid} with it\n")
        status = signal.SIGKILL
    if os.WIFSIGNALED(status):
        signum = os.WTERMSIG(status)
        if signum != signal.SIGKILL:
            signal.signal(signum, signal.SIG_DFL)
        os.kill(os.getpid(), signum)
    sys.exit(os.WEXITSTATUS(status))


def _normally(arguments: list[str], reason: str) -> None:
    """Become the program that would have run without a fork server."""
    events.emit("fork_declined", reason=reason, program=arguments[:2])
    sys.stderr.write(f"{NORMALLY}: {reason}\n")
    sys.stderr.flush()
    if arguments[:1] == [SCRIPT]:
        del arguments[0]
    elif _is_worker(arguments):
        arguments = [os.environ[SETUP_WORKER_VARIABLE], *arguments]
    os.execv(sys.executable, [sys.executable, *arguments])  # noqa: S606 - becoming it is the purpose


if __name__ == "__main__":
    main(sys.argv[1:])
