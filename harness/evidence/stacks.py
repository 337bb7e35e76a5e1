"""The Python stacks of all processes of a run, taken from outside when it hangs.

py-spy is asked where it is installed and may trace (it needs ptrace). Else each process writes its own:
:func:`register` at its start, SIGUSR1 when asked. Standard library only above the first function: every
Ray worker imports this.
"""

from __future__ import annotations

import faulthandler
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from harness.evidence.events import FILE_VARIABLE

FOLDER = "stacks"
FILE = "stacks.txt"
_TRACER_SECONDS, _OWN_SECONDS = 10.0, 3.0
_NONE = "no Python stack: not Python, or stuck before verl was imported"


@dataclass(frozen=True, kw_only=True)
class Stack:
    """One process's threads as text, and who told them: ``py-spy``, ``faulthandler``, or nobody."""

    pid: int
    title: str
    told_by: str
    text: str


def register() -> None:
    """Let this process write its threads' stacks to the run's folder on SIGUSR1; never raises.

    faulthandler writes from the signal handler itself, so it also works where Python code is stuck in C.
    """
    events = os.environ.get(FILE_VARIABLE)
    if not events or not hasattr(faulthandler, "register"):
        return
    folder = Path(events).parent / FOLDER
    with suppress(OSError, ValueError):
        folder.mkdir(exist_ok=True)
        # Left open for the life of the process, as faulthandler needs it.
        file = (folder / f"{os.getpid()}.txt").open("a", encoding="utf-8")
        # In a fork faulthandler believes what its parent registered, and does not set the handler again that
        # the child has reset: SIGUSR1 would end it.
        faulthandler.unregister(signal.SIGUSR1)
        faulthandler.register(signal.SIGUSR1, file=file, all_threads=True, chain=False)


def collect(run_id: str, folder: Path) -> list[Stack]:
    """Take the stacks of the run's processes; leaves them in ``stacks.txt`` of the run folder too."""
    from harness.evidence.processes import find

    found = [_stack(seen.pid, seen.title, folder) for seen in find(run_id) if seen.pid != os.getpid()]
    write(found, folder)
    return found


def write(stacks: list[Stack], folder: Path) -> None:
    """Put them where the record's reader finds them."""
    text = "".join(f"== {s.title} (pid {s.pid}), by {s.told_by}\n{s.text.rstrip()}\n\n" for s in stacks)
    with suppress(OSError):
        (folder / FILE).write_text(text, encoding="utf-8")
    shutil.rmtree(folder / FOLDER, ignore_errors=True)


def own(title: str, folder: Path) -> Stack:
    """This process's threads."""
    path = folder / f".{FILE}"
    with path.open("w+", encoding="utf-8") as file:
        faulthandler.dump_traceback(file, all_threads=True)
        file.seek(0)
        text = file.read()
    path.unlink()
    return Stack(pid=os.getpid(), title=title, told_by="faulthandler", text=text)


def _stack(pid: int, title: str, folder: Path) -> Stack:
    traced = _py_spy(pid)
    if traced:
        return Stack(pid=pid, title=title, told_by="py-spy", text=traced)
    said = _own_words(pid, folder / FOLDER / f"{pid}.txt")
    return Stack(pid=pid, title=title, told_by="faulthandler" if said else "nobody", text=said or _NONE)


def _py_spy(pid: int) -> str | None:
    beside = Path(sys.executable).with_name("py-spy")  # an environment's programs need not be on PATH
    tool = str(beside) if beside.is_file() else shutil.which("py-spy")
    if tool is None:
        return None
    try:
        done = subprocess.run(
            [tool, "dump", "--full-filenames", "--pid", str(pid)],
            capture_output=True,
            text=True,
            check=False,
            timeout=_TRACER_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 and "Thread" in done.stdout else None


def _own_words(pid: int, path: Path) -> str:
    """Ask the process itself; only one that registered: SIGUSR1 ends any other."""
    if not path.is_file():
        return ""
    before = path.stat().st_size
    with suppress(OSError):
        os.kill(pid, signal.SIGUSR1)
    deadline = time.monotonic() + _OWN_SECONDS
    size = before
    while time.monotonic() < deadline:
        time.sleep(0.05)
        now = path.stat().st_size
        if now > before and now == size:  # it has grown, and stopped growing
            break
        size = now
    return path.read_text(encoding="utf-8", errors="replace")[before:]
