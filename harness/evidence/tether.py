"""Ties a child to its parent, then becomes the child: ``python -I -S tether.py PARENT-PID command...``.

When the parent is killed (SIGKILL leaves it no time to do anything), the kernel kills the child. Ray's
reaper process then ends the rest, because the child leads its process group. It is a program of its
own, and not a ``preexec_fn``, because Python code between fork and exec may deadlock in a parent with
threads, and the climb has torch's. It costs about 15 ms. Elsewhere than on Linux it only becomes the
child; the next climb sweeps what was left.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def tied(*command: str, python: str = sys.executable) -> list[str]:
    """The command line that starts ``command`` as a child of this process's, by ``python``."""
    return [python, "-I", "-S", __file__, str(os.getpid()), *command]


def _main(parent: int, command: list[str]) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # It died before the tie was made.
            sys.exit(137)
    # Python ignores these two, and what is ignored stays ignored across exec.
    for signum in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(signum, signal.SIG_DFL)
    try:
        os.execvp(command[0], command)  # noqa: S606 - becoming the command is the purpose
    except OSError as error:
        sys.stderr.write(f"cannot start {command[0]}: {error.strerror}\n")
        sys.exit(127)


if __name__ == "__main__":
    _main(int(sys.argv[1]), sys.argv[2:])
