"""What a forked process does to be like one that was started."""

from __future__ import annotations

import os
import resource
import runpy
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NoReturn

from harness.evidence import stacks
from harness.evidence.processes import RUN_VARIABLE
from harness.warm import ray_hooks, title
from harness.warm.standin import SCRIPT, tie

# This module is imported before Ray and verl.
_FIRST_PATH = sys.path[0]


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a stand-in asks for: the program's arguments, and what a child would have got from its parent."""

    arguments: list[str]
    environment: dict[str, str]
    folder: str
    limits: dict[str, tuple[int, int]]
    oom_score: int
    checked: dict[str, Any] | None = None
    """The server's check of the environment, made for this process."""

    @property
    def kind(self) -> Literal["module", "script", "worker"]:
        """``python -m MODULE``, one of Ray's own scripts, or a worker of Ray."""
        if self.arguments[:1] == ["-m"] or self.arguments[:2] == ["-P", "-m"]:
            return "module"
        return "script" if self.arguments[:1] == [SCRIPT] else "worker"

    @property
    def words(self) -> list[str]:
        """The interpreter's arguments in a normal start."""
        return self.arguments[1:] if self.kind == "script" else self.arguments


def become(
    request: Request, streams: Sequence[int], outcomes: Sequence[Mapping[str, Any]], server: int
) -> NoReturn:
    """Run what was asked for, in this freshly forked process, and end it as an interpreter would."""
    tie(server)
    os.setsid()  # the raylet kills the process group of a worker that exits, and the climb the driver's
    _signals()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    for stream in streams:
        if stream > 2:
            os.close(stream)
    os.chdir(request.folder)
    os.environ.clear()
    os.environ.update(request.environment)
    _limits(request)
    _random_state()
    if run_id := request.environment.get(RUN_VARIABLE):
        title.show(RUN_VARIABLE, run_id)
    stacks.register()  # the server's goes to the server's file
    ray_hooks.in_child()
    words = [sys.executable, *request.words]
    sys.orig_argv[:] = words
    title.write(words)
    match request.kind:
        case "worker":
            _run(_worker(request, outcomes))
        case "module":
            _run(_module(request, outcomes))
        case "script":
            _run(_script(request))


def _worker(request: Request, outcomes: Sequence[Mapping[str, Any]]) -> Callable[[], None]:
    def run() -> None:
        from harness.warm.proof import prove

        # The proof names the process by its title, and Ray's own is set within the program.
        ray_hooks.set_worker_variables(request.arguments)
        ray_hooks.own_title("ray::IDLE")
        prove(outcomes, request.checked)
        words = ray_hooks.worker_words(request.arguments)
        _prepend(str(Path(words[0]).parent))
        sys.argv[:] = words
        runpy.run_path(words[0], run_name="__main__")

    return run


def _module(request: Request, outcomes: Sequence[Mapping[str, Any]]) -> Callable[[], None]:
    begin = request.arguments.index("-m")
    name, *rest = request.arguments[begin + 1 :]

    def run() -> None:
        from harness.warm.proof import prove

        prove(outcomes, request.checked)
        ray_hooks.redirect_workers()
        sys.argv[:] = [name, *rest]
        if begin == 0:  # with -P the working directory is no place of modules
            _prepend(request.folder)
        with warnings.catch_warnings():
            # "found in sys.modules": it is imported in the server, and run here as __main__.
            warnings.filterwarnings("ignore", category=RuntimeWarning, module="runpy")
            runpy.run_module(name, run_name="__main__", alter_sys=True)

    return run


def _prepend(folder: str) -> None:
    """Put the program's folder where an interpreter puts it: before all that was there at the start.

    Ray's import puts its own third-party folder before that.
    """
    sys.path.insert(sys.path.index(_FIRST_PATH), folder)


def _script(request: Request) -> Callable[[], None]:
    def run() -> None:
        words = [word for word in request.words if word != "-u"]  # unbuffered is what the server is
        sys.argv[:] = words
        _prepend(str(Path(words[0]).parent))
        runpy.run_path(words[0], run_name="__main__")

    return run


def _run(program: Callable[[], None]) -> NoReturn:
    """Run it to its end, as Python's own main does: the exit code, the traceback, the exit handlers."""
    code: int | str | None = 0
    try:
        program()
    except SystemExit as end:
        code = end.code
    except KeyboardInterrupt:
        traceback.print_exc()
        _leave()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:  # noqa: BLE001 - whatever it is, it ends the program with its traceback
        traceback.print_exc()
        code = 1
    if isinstance(code, str):
        sys.stderr.write(f"{code}\n")
        code = 1
    _leave()
    os._exit((code or 0) & 0xFF)


def _leave() -> None:
    """What happens at an interpreter's end and not in ``os._exit``: threads, exit handlers, buffers."""
    import atexit
    import threading

    threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001 - Py_FinalizeEx calls it, then atexit
    atexit._run_exitfuncs()  # noqa: SLF001
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            continue


def _signals() -> None:
    """The handlers of a fresh interpreter."""
    if sys.platform != "linux":
        raise OSError("the fork server is for Linux")
    signal.set_wakeup_fd(-1)
    for signum in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        if signum < signal.SIGRTMIN:
            signal.signal(signum, signal.SIG_DFL)
    for signum in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(signum, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _limits(request: Request) -> None:
    """The stand-in's limits: the raylet or the user may have changed them for what they start."""
    for name, (soft, hard) in request.limits.items():
        try:
            resource.setrlimit(getattr(resource, name), (soft, hard))
        except (OSError, ValueError):
            continue
    try:
        Path("/proc/self/oom_score_adj").write_text(str(request.oom_score), encoding="utf-8")
    except OSError:
        return


def _random_state() -> None:
    """Seed from the system, as at a start. Python's own ``random`` does it by itself after a fork."""
    import numpy as np
    import torch

    np.random.seed()
    torch.default_generator.seed()
