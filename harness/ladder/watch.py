"""The watchdog: a rung that takes too long, or a trainer that says nothing, is ended with its stacks kept."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from harness.diagnose import hang
from harness.errors import HangError
from harness.evidence import events, stacks
from harness.ladder import ray_state

# Code that swallows every exception, or sits in C, gets some more chances before the process is ended.
_TRIES, _BETWEEN_SECONDS = 5, 2.0


class _Expired(BaseException):
    """Raised in the main thread at the deadline; no ``except Exception`` of a user's function swallows it."""


def trainer_hangs(run_id: str, folder: Path, environ: Mapping[str, str], reason: str) -> HangError:
    """Look at a trainer that stands still, before it is ended."""
    events.emit("hang", reason=reason)
    state = ray_state.ask(run_id, environ)
    found = stacks.collect(run_id, folder)
    if state is not None:
        events.emit(
            "ray_state",
            total=dict(state.total),
            used=dict(state.used),
            demands=[vars(d) for d in state.demands],
        )
    return error_of(hang.evaluate(found, state), reason, folder, len(found))


def error_of(verdict: hang.Verdict, reason: str, folder: Path, processes: int) -> HangError:
    """The verdict as the error that ends the climb."""
    error = HangError(
        f"{reason}: {verdict.what}",
        where=verdict.where,
        why=f"{verdict.why}; the stacks of {processes} processes are in {folder / stacks.FILE}",
        todo=verdict.todo,
    )
    error.signature, error.failure_class, error.also = (
        verdict.signature,
        verdict.failure_class,
        verdict.also,
    )
    return error


@contextmanager
def watched(name: str, seconds: float, folder: Path, last: Callable[[HangError], None]) -> Iterator[None]:
    """End a rung of this process after ``seconds``: :class:`HangError` in the main thread.

    ``last`` is called where even that does not help; it completes the record, and the process is ended.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    left = threading.Event()
    told: list[HangError] = []
    main = threading.main_thread()

    def expire() -> None:
        if left.wait(seconds):
            return
        reason = f"{name} has taken longer than {seconds:g} s"
        events.emit("hang", reason=reason)
        seen = [stacks.own("verlock climb", folder)]
        stacks.write(seen, folder)
        told.append(error_of(hang.evaluate(seen, None), reason, folder, 1))
        for _ in range(_TRIES):
            signal.pthread_kill(main.ident or 0, signal.SIGALRM)
            if left.wait(_BETWEEN_SECONDS):
                return
        last(told[0])
        os._exit(HangError.exit_code)

    def strike(_signum: int, _frame: FrameType | None) -> None:
        if told and not left.is_set():
            raise _Expired

    before = signal.signal(signal.SIGALRM, strike)
    threading.Thread(target=expire, daemon=True, name="verlock watchdog").start()
    try:
        yield
    except _Expired:
        left.set()
        raise told[0] from None
    finally:
        left.set()
        signal.signal(signal.SIGALRM, before)
