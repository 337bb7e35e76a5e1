"""``reward``: verl's own reward manager scores the responses, in this process."""

from __future__ import annotations

import asyncio
import math
import traceback
from typing import Any

from harness.errors import Problem, RungFailedError
from harness.ladder import batch as batches
from harness.ladder import cause
from harness.ladder.context import Context, Verified

# What a run's record calls a reward that cannot be used (harness/diagnose/signatures.yaml).
SIGNATURE = "reward-function"


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
        first, second = asyncio.run(score()), asyncio.run(score())
    except Exception as error:  # the user's code, or their data
        raise _raised(context, error) from error
    found = _problems(first, second)
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


def _raised(context: Context, error: Exception) -> RungFailedError:
    """What the user's function or their rows raised, at its place in their file."""
    below = error.__cause__ or error
    told = cause.of_text(context.record, "".join(traceback.format_exception(error)))
    path = context.workers.config.reward.custom_reward_function.path or "verl's default reward"
    return cause.explained(
        RungFailedError(
            f"scoring raised {type(below).__name__}: {below}",
            where=f"{told.file}:{told.line}" if told.file else str(path),
            why=told.cause if told.known else None,
            todo="call it on one row; verl passes data_source, solution_str, ground_truth, extra_info",
        ),
        told,
    )


def _problems(first: list[Any], second: list[Any]) -> list[Problem]:
    bad = [score for score in first if not isinstance(score, int | float) or not math.isfinite(score)]
    if bad:
        return [Problem(what=f"the reward function returned {bad[0]!r}", why="verl needs a finite number")]
    if first != second:
        return [
            Problem(
                what="the reward function scores the same responses differently",
                why="runs cannot be compared",
            )
        ]
    return []
