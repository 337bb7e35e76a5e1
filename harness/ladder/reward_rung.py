"""``reward``: verl's own reward manager scores the responses, in this process."""

from __future__ import annotations

import asyncio
import math
import os
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from harness.errors import Problem, RungFailedError
from harness.ladder import batch as batches
from harness.ladder import cause, reward_load, reward_source
from harness.ladder.context import Context, Verified
from harness.ladder.reward_source import NO_SCORE

# What a run's record calls a reward that cannot be used (harness/diagnose/signatures.yaml).
SIGNATURE = "reward-function"
_LONGEST = 600
_ENDS = "raise an error, or return a score: verl's reward worker would be gone with it"
_ONE_ROW = "call it on one row; verl passes data_source, solution_str, ground_truth, extra_info"


class _ExitedError(BaseException):
    """The function asked to end the process at once."""


def climb(context: Context) -> Verified:
    """Score generated responses (or, without a rollout rung, the ground truths) twice."""
    from verl.trainer.ppo.reward import load_reward_manager

    workers = context.workers
    tokenizer = workers.model_config.tokenizer
    pairs = context.responses and [(row, answer.token_ids) for row, answer in context.responses]
    if not pairs:
        rows = batches.rows(context.inputs.train, context.inputs.batch)
        pairs = [(row, batches.answer_ids(tokenizer, row, context.inputs.response_length)) for row in rows]

    async def score() -> list[Any]:
        manager = load_reward_manager(workers.config, tokenizer)
        return [(await manager.run_single(_item(tokenizer, row, ids)))["reward_score"] for row, ids in pairs]

    try:
        with _no_exit():
            first, second = asyncio.run(score()), asyncio.run(score())
    except KeyboardInterrupt as error:  # Ctrl-C strikes the main thread; verl calls the function in another
        if not _of_theirs(error, str(workers.config.reward.custom_reward_function.path))[1]:
            raise
        raise _raised(context, error) from error
    except (Exception, SystemExit, _ExitedError) as error:  # the user's code, or their data
        raise _raised(context, error) from error
    found = _problems(first, second, _place(context))
    if found:
        unusable = RungFailedError(*found)
        unusable.signature = SIGNATURE
        raise unusable
    kind = "mock reward" if context.options.reward == "mock" else "reward"
    return Verified(
        line=f"{kind}: {len(first)} responses scored {min(first):.3f} to {max(first):.3f}, twice the same",
        details={"scores": first, "from_rollout": bool(context.responses)},
    )


def _item(tokenizer: Any, row: dict[str, Any], ids: list[int]) -> Any:
    import numpy as np
    from verl import DataProto

    tensors = batches.padded([batches.prompt_ids(tokenizer, row)], [ids], pad_id=tokenizer.pad_token_id)
    extra = {key: np.array([value], dtype=object) for key, value in row.items() if key != "prompt"}
    return DataProto.from_dict(tensors=tensors, non_tensors=extra)


@contextmanager
def _no_exit() -> Iterator[None]:
    """``os._exit`` in a reward function would end this process, with its exit code and without a verdict."""
    leave, own = os._exit, os.getpid()

    def refused(status: int) -> None:
        if os.getpid() != own:  # a child that it forked may
            leave(status)
        raise _ExitedError(f"os._exit({status})")

    os._exit = refused  # type: ignore[assignment]
    try:
        yield
    finally:
        os._exit = leave


def _place(context: Context) -> str:
    chosen = context.workers.config.reward.custom_reward_function
    return f"{chosen.path}:{chosen.name}" if chosen.path else "verl's default reward"


def _raised(context: Context, error: BaseException) -> RungFailedError:
    """What the user's function, their file or their rows raised, at its place in their file."""
    told = cause.of_exception(context.record, error)
    chosen = context.workers.config.reward.custom_reward_function
    below, theirs = _of_theirs(error, str(chosen.path))
    if any(frame.name == "<module>" for frame in theirs):
        asked = reward_load.Asked(
            file=chosen.path, function=chosen.name, given=_place(context), passed=reward_source.PASSED
        )
        failed = RungFailedError(reward_load.failed(asked, below).problem)
    else:
        where = f"{chosen.path}:{theirs[-1].lineno}" if theirs else None
        where = where or (f"{told.file}:{told.line}" if told.file else _place(context))
        ends = isinstance(below, SystemExit | _ExitedError)
        what = (
            f"the reward function ends the process: {_said(below)}"
            if ends
            else f"scoring raised {_said(below)}"
        )
        if below.__cause__ is not None and not ends:
            what += f" (from {_said(below.__cause__)})"
        why = told.cause if told.known else None
        failed = RungFailedError(what, where=where, why=why, todo=told.fix or (_ENDS if ends else _ONE_ROW))
    cause.explained(failed, told)
    if theirs and not told.known:
        lacks = isinstance(below, ModuleNotFoundError)
        failed.signature, failed.failure_class = SIGNATURE, "environment" if lacks else "model-logic"
    return failed


def _of_theirs(error: BaseException, file: str) -> tuple[BaseException, list[traceback.FrameSummary]]:
    """The error that came through the user's file, and its frames there: verl's loader wraps some."""
    for one in (error, error.__cause__):
        if one is None:
            continue
        theirs = [frame for frame in traceback.extract_tb(one.__traceback__) if frame.filename == file]
        if theirs:
            return one, theirs
    return error.__cause__ or error, []


def _said(error: BaseException) -> str:
    """The error's type and what it says, in one line of printable characters; its stack is in the log."""
    if isinstance(error, _ExitedError):
        return str(error)
    if isinstance(error, SystemExit):
        return f"sys.exit({error.code!r})"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    shown = "".join(char if char.isprintable() else repr(char)[1:-1] for char in " / ".join(lines))
    return f"{type(error).__name__}: {shown[:_LONGEST]}" if shown else type(error).__name__


def _problems(first: list[Any], second: list[Any], place: str) -> list[Problem]:
    bad = [score for score in first if not isinstance(score, int | float) or not math.isfinite(score)]
    if bad:
        return [
            Problem(
                what=f"the reward function returned {bad[0]!r}",
                where=place,
                why="verl needs a finite number",
                todo=NO_SCORE,
            )
        ]
    if first != second:
        return [
            Problem(
                what="the reward function scores the same responses differently",
                where=place,
                why="runs cannot be compared",
                todo="draw no random numbers in it, or seed them by what is scored",
            )
        ]
    return []
