"""Which failure still stands: one is answered by nothing but the same command, passed. Pure.

A climb of something else that passes says nothing of it, and a replay is no run of its own: it says whether
the failure comes again.
"""

from __future__ import annotations

from collections.abc import Sequence

from harness.evidence.model import Run

# What may be another in the run that answers: where it is written, how long it may take, what it shows. Which
# rungs it climbed is told by the rungs themselves.
_NO_MATTER = frozenset({"deadline", "first", "last", "log_level", "runs", "silence", "stop"})


def originals(runs: Sequence[Run]) -> list[Run]:
    """Those that a user asked for: without replays."""
    return [run for run in runs if run.replays is None]


def newest_failed(runs: Sequence[Run]) -> Run | None:
    """The last that failed, answered or not."""
    return next((run for run in reversed(originals(runs)) if run.status == "failed"), None)


def newest(runs: Sequence[Run]) -> Run | None:
    """The failure that is to be seen to; ``runs``: the oldest first."""
    failed = [run for run in originals(runs) if run.status == "failed"]
    return next((one for one in reversed(failed) if not any(answers(run, one) for run in runs)), None)


def answers(run: Run, failed: Run) -> bool:
    """Whether it is the same command, later, and as far as it was meant to come."""
    passed = {rung.name for rung in run.rungs if rung.status == "passed"}
    return (
        run.status == "passed"
        and run.started > failed.started
        and same_asked(run, failed)
        and run.settings.get("last") == failed.settings.get("last")
        and {rung.name for rung in failed.rungs} <= passed
    )


def same_asked(run: Run, other: Run) -> bool:
    """Whether both were asked for the same, apart from which rungs."""
    if not (run.settings and other.settings):  # it ended before they were known
        return run.command == other.command
    asked, theirs = (
        {key: value for key, value in one.settings.items() if key not in _NO_MATTER} for one in (run, other)
    )
    same_place = (run.profile, run.rehearsal) == (other.profile, other.rehearsal)
    return same_place and asked == theirs


def same_failure(run: Run, failed: Run) -> bool:
    """Whether it failed in the same way: a replay of it, or the same asked for again."""
    if run.id == failed.id or run.failure is None or failed.failure is None:
        return False
    again = run.replays == failed.id or same_asked(run, failed)
    return again and run.failure.signature == failed.failure.signature
