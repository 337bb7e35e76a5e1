"""Tries a reward function as verl will call it, with responses of every kind, in a process of its own."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import harness
from harness.data import parquet_check, responses
from harness.data.finding import Finding
from harness.data.responses import Response
from harness.errors import OverrideError, RungFailedError
from harness.ladder import batch as batches
from harness.ladder import reward_source
from harness.ladder.options import ClimbOptions
from harness.ladder.reward_calls import Call

Manager = Literal["naive", "dapo", "batch"]
_READY_SECONDS = 180.0
_PROCESSES = 3


@dataclass(frozen=True, kw_only=True)
class Trial:
    """What is tried: ``reward`` is PATH:FUNCTION, ``seconds`` the longest that one call may take."""

    reward: str
    data: Path
    rows: int
    manager: Manager
    model: str
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Tried:
    """The calls or, where the function cannot be called at all, the finding that says why."""

    calls: tuple[Call, ...] = ()
    finding: Finding | None = None


def run(trial: Trial, progress: Callable[[str], None]) -> Tried:
    """Call the function twice with every response.

    Raises :class:`OverrideError` for a reward that is not there, :class:`DataError` for rows that verl
    does not read, and :class:`RungFailedError` where verl itself cannot be started.
    """
    file, function = _named(trial.reward)
    parquet_check.check(trial.data)
    rows = batches.rows(trial.data, trial.rows)
    asked = list(responses.make(rows))
    progress(f"loading {trial.reward} into verl's {trial.manager} manager")
    order = {
        "file": str(file),
        "function": function,
        "given": trial.reward,
        "manager": trial.manager,
        "data": str(trial.data.absolute()),
        "rows": len(rows),
        "model": trial.model,
        "responses": [vars(response) for response in asked],
    }
    calls: list[Call] = []
    try:
        for process in range(1, _PROCESSES + 1):
            calls += _child(order | {"first": len(calls)}, asked, trial, len(calls))
            if len(calls) == len(asked):
                break
            onward = (
                "going on after it in a new process" if process < _PROCESSES else "the others are not tried"
            )
            progress(f"response {len(calls)} of {len(asked)}: {calls[-1].ended}; {onward}")
    except _NotLoadedError as error:
        return Tried(finding=error.finding)
    scored = sum(bool(call.scores) for call in calls)
    progress(f"{scored} of {len(asked)} responses to {len(rows)} rows were scored, each twice")
    return Tried(calls=tuple(calls))


def _named(reward: str) -> tuple[Path, str]:
    """File and function of PATH:FUNCTION; a path alone is answered with the functions that are there."""
    path, _, function = reward.rpartition(":")
    found = ClimbOptions(reward=reward).reward_function() if path and function else None
    if found is not None:
        return found
    file = reward.rstrip(":")
    names = reward_source.read(Path(file).expanduser(), "", given=file).functions
    raise OverrideError(
        f"{reward} names no function",
        todo=f"give PATH:FUNCTION; it defines: {', '.join(names)}" if names else "give PATH:FUNCTION",
    )


class _NotLoadedError(Exception):
    """The function cannot be called as verl calls it."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.what)
        self.finding = finding


def _child(order: dict[str, Any], asked: Sequence[Response], trial: Trial, first: int) -> list[Call]:
    """Calls until the end, or until the child hung or died in one, which is then the last."""
    reader, writer = os.pipe()
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "harness.ladder.reward_child"],
            stdin=subprocess.PIPE,
            stdout=said,
            stderr=said,
            pass_fds=(writer,),
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": str(Path(harness.__file__).parents[1]), "OMP_NUM_THREADS": "1"},
        )
        os.close(writer)
        try:
            with os.fdopen(reader, "rb", buffering=0) as answers:
                assert process.stdin is not None  # noqa: S101 - it is a pipe
                process.stdin.write(json.dumps(order | {"answers": writer}).encode())
                process.stdin.close()
                return _listen(answers, asked, trial, first, said)
        finally:
            # The whole group: a reward function may have started processes of its own.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _listen(answers: Any, asked: Sequence[Response], trial: Trial, first: int, said: Any) -> list[Call]:
    """Calls as they are told; each of a response's two calls has the trial's seconds."""
    calls: list[Call] = []
    lines, limit, begun, loading = _Lines(answers), _READY_SECONDS, None, False
    while True:
        line = lines.next(limit)
        if isinstance(line, str):
            if begun is not None:
                return [*calls, replace(begun, ended=line)]
            if first + len(calls) == len(asked):
                return calls
            if loading:
                raise _NotLoadedError(_ended(trial, line))
            raise RungFailedError(
                f"verl could not be started to call the reward function: it {line}",
                where=trial.reward,
                why=_last_line(said),
            )
        if "finding" in line:
            raise _NotLoadedError(Finding(**line["finding"]))
        loading = "loading" in line
        if "begin" in line:
            item = asked[line["begin"]]
            begun, limit = Call(kind=item.kind, row=item.row, response=line["response"]), trial.seconds
        elif "end" in line and begun is not None:
            values: dict[str, Any] = {
                key: tuple(value) if isinstance(value, list) else value
                for key, value in line.items()
                if key != "end"
            }
            calls.append(replace(begun, **values))
            # Before the next one a model may have to write a response.
            begun, limit = None, _READY_SECONDS


def _ended(trial: Trial, how: str) -> Finding:
    return Finding(
        id="reward-load",
        key=trial.reward,
        what=f"it cannot be loaded: the file {how} while verl runs it",
        why="verl runs the whole file when it loads the function",
        todo='put what is not for verl under: if __name__ == "__main__"',
    )


class _Lines:
    """JSON lines from a pipe, each within a time."""

    def __init__(self, pipe: Any) -> None:
        self._pipe, self._rest = pipe, b""

    def next(self, seconds: float) -> dict[str, Any] | str:
        """The next line, or what happened instead."""
        while b"\n" not in self._rest:
            ready, _, _ = select.select([self._pipe], [], [], seconds)
            if not ready:
                return f"did not end within {seconds:g} s"
            more = self._pipe.read(1 << 16)
            if not more:
                return "ended its process"
            self._rest += more
        line, self._rest = self._rest.split(b"\n", 1)
        answer: dict[str, Any] = json.loads(line)
        return answer


def _last_line(said: Any) -> str | None:
    said.seek(0)
    lines = said.read().decode(errors="replace").strip().splitlines()
    return lines[-1][:300] if lines else None
