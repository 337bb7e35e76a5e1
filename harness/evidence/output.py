"""Run a child to its end: its output goes to ``output.log`` as it comes, and nothing of it is left.

The child leads a session and process group of its own, so a Ctrl-C on the terminal reaches only the
climb, which then ends the child in order: SIGINT, some seconds, SIGKILL, and a sweep of everything
that carries the run's id.
"""

from __future__ import annotations

import codecs
import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from harness.errors import InterruptedRunError
from harness.evidence import tether
from harness.evidence.files import explain
from harness.evidence.processes import RUN_VARIABLE, Ended, sweep

_POLL_SECONDS = 0.2
# Ray needs one or two seconds to end its processes.
GRACE = 8.0
# After the child's end, how long a silent pipe is still watched: daemons may hold it open for ever.
_DRAIN_SECONDS = 0.5


@dataclass(frozen=True, kw_only=True)
class Finished:
    """How a child ended. ``exit_code`` is negative for a signal, as in :mod:`subprocess`.

    ``left_over`` are the processes of the run that did not leave by themselves.
    """

    exit_code: int
    seconds: float
    timed_out: bool
    """Whether it was ended for one of its limits."""
    left_over: tuple[Ended, ...] = ()


class _Lines:
    """Cuts bytes into lines of text. Of a line redrawn with carriage returns the last state counts."""

    def __init__(
        self, on_line: Callable[[str], None] | None, news: Callable[[str], bool] | None = None
    ) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode
        self._rest = ""
        self._on_line = on_line
        self._news = news

    def feed(self, data: bytes, *, last: bool = False) -> bool:
        """Whether something was said that is news. A line may not have ended yet, as a progress bar's."""
        *lines, self._rest = (self._rest + self._decode(data, last)).split("\n")
        if last and self._rest:
            lines.append(self._rest)
        drawn = [line.rstrip("\r").rpartition("\r")[2] for line in [*lines, self._rest]]
        if self._on_line is not None:
            for line in drawn[:-1]:
                self._on_line(line)
        if self._news is None:
            return True
        heard = [self._news(line) for line in drawn]  # each is remembered, not only the first that is news
        return any(heard)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How long a child may run in all, and how long it may say nothing, in seconds.

    ``news`` says of a line whether it breaks the silence (default: every line does). ``lost`` says why the
    child cannot go on, once something that it said shows that it cannot. ``on_expiry`` is told which was
    passed, while all of the child's processes still stand where they are.
    """

    timeout: float | None = None
    silence: float | None = None
    news: Callable[[str], bool] | None = None
    lost: Callable[[], str | None] = lambda: None
    on_expiry: Callable[[str], None] | None = None

    def passed(self, began: float, heard: float, now: float) -> str | None:
        """Which limit is passed, in words."""
        if self.timeout is not None and now > began + self.timeout:
            return f"has taken longer than {self.timeout:g} s"
        if self.silence is not None and now > heard + self.silence:
            return f"has said nothing new for {self.silence:g} s"
        return self.lost()


def run(
    command: Sequence[str],
    *,
    log: Path,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    on_line: Callable[[str], None] | None = None,
    limits: Limits = Limits(),
    grace: float = GRACE,
    spare: Collection[int] = (),
) -> Finished:
    """Run ``command``, append its merged output to ``log``, and wait for its end.

    ``env`` is the whole environment (default: this process's). If it holds ``VERLOCK_RUN_ID``, all
    that carries the same id and is still there ``grace`` seconds after the end is swept, except
    ``spare``. A child that passes a limit is ended like on Ctrl-C, but returned with ``timed_out``.

    Raises :class:`InterruptedRunError` on SIGINT or SIGTERM (only noticed in the main thread),
    :class:`DiskFullError` or :class:`RecordError` when the log cannot be written. The child and what
    it started are gone by then.
    """
    environment = dict(os.environ if env is None else env)
    began = time.monotonic()
    try:
        sink = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise explain(error, log, what="write the output log") from error
    try:
        with _asked_to_end() as asked, _started(command, environment, cwd) as child:
            try:
                expired = _copy(child, sink, log, _Lines(on_line, limits.news), asked, limits)
                if expired and limits.on_expiry is not None:
                    limits.on_expiry(expired)
            except BaseException:
                _end(child, environment, grace, asked, spare)
                raise
            if expired or asked:
                left = _end(child, environment, grace, asked, spare)
            else:
                left = _sweep(environment, patience=grace, spare=spare)
            if asked:
                by = signal.Signals(asked[0]).name
                told = InterruptedRunError(
                    f"the run was ended by {by}",
                    where=str(log),
                    why="Ctrl-C was pressed, or the process was asked to end",
                    todo="start it again; the record of this run is kept",
                )
                told.by = by
                raise told
            return Finished(
                exit_code=child.wait(),
                seconds=time.monotonic() - began,
                timed_out=expired is not None,
                left_over=tuple(left),
            )
    finally:
        os.close(sink)


@contextmanager
def _started(
    command: Sequence[str], environment: Mapping[str, str], cwd: Path | None
) -> Iterator[subprocess.Popen[bytes]]:
    """Start the child on its tether; the kernel's tie is to this *thread*, so it must outlive the child."""
    with subprocess.Popen(
        tether.tied(*command),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment,
        cwd=cwd,
        start_new_session=True,
    ) as child:
        yield child


@contextmanager
def _asked_to_end() -> Iterator[list[int]]:
    """Collect SIGINT and SIGTERM in the list instead of letting them strike between two lines."""
    asked: list[int] = []

    def note(signum: int, _frame: FrameType | None) -> None:
        asked.append(signum)

    if threading.current_thread() is not threading.main_thread():
        yield asked
        return
    before = {signum: signal.signal(signum, note) for signum in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


def _copy(
    child: subprocess.Popen[bytes],
    sink: int,
    log: Path,
    lines: _Lines,
    asked: list[int],
    limits: Limits,
) -> str | None:
    """Copy until the child has ended and its pipe is dry; says which limit was passed before that."""
    pipe = _pipe(child)
    began = heard = time.monotonic()
    ended_at: float | None = None
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        while not asked:
            data = os.read(pipe, 1 << 16) if selector.select(_POLL_SECONDS) else None
            if data:
                _write(sink, data, log)
                heard = time.monotonic() if lines.feed(data) else heard
            elif data == b"" and selector.get_map():
                selector.unregister(pipe)
            now = time.monotonic()
            if ended_at is None and child.poll() is not None:
                ended_at = now
            if ended_at is not None and not data and (data == b"" or now - ended_at > _DRAIN_SECONDS):
                break
            if ended_at is None and (passed := limits.passed(began, heard, now)):
                return passed
            if not selector.get_map() and ended_at is None:
                with suppress(subprocess.TimeoutExpired):
                    child.wait(timeout=_POLL_SECONDS)
    lines.feed(b"", last=True)
    return None


def _write(sink: int, data: bytes, log: Path) -> None:
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(sink, view) :]
        except OSError as error:
            raise explain(error, log, what="write the output log") from error


def _end(
    child: subprocess.Popen[bytes],
    environment: Mapping[str, str],
    grace: float,
    asked: list[int],
    spare: Collection[int],
) -> list[Ended]:
    """End the child in order; a second Ctrl-C cuts the waiting short. Its pipe is drained meanwhile."""
    if child.poll() is None:
        child.send_signal(signal.SIGINT)
    drain = threading.Thread(target=_discard, args=(_pipe(child),), daemon=True)
    drain.start()
    deadline, signals = time.monotonic() + grace, len(asked)
    while child.poll() is None and time.monotonic() < deadline and len(asked) == signals:
        time.sleep(0.05)
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    left = _sweep(environment, patience=0.0, spare=spare)
    child.wait()
    drain.join(timeout=1.0)
    return left


def _pipe(child: subprocess.Popen[bytes]) -> int:
    if child.stdout is None:
        raise ValueError("the child was started without a pipe")
    return child.stdout.fileno()


def _discard(pipe: int) -> None:
    with suppress(OSError):
        while os.read(pipe, 1 << 16):
            pass


def _sweep(environment: Mapping[str, str], *, patience: float, spare: Collection[int]) -> list[Ended]:
    run_id = environment.get(RUN_VARIABLE)
    return sweep(run_id, patience=patience, spare=spare) if run_id else []
