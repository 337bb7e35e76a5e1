"""``rollout``: the rollout's generator against the trainer's own log-probabilities.

Weights come from the training engine through verl's ``get_per_tensor_param``, as in a real step. Then
the trainer computes the probabilities of what was generated, and both must be the same numbers.
"""

from __future__ import annotations

import asyncio
from typing import Any

import torch

from harness.errors import Problem, RungFailedError
from harness.ladder import batch as batches
from harness.ladder.context import Context, Verified
from harness.ladder.tolerance import probs_tolerance


def climb(context: Context) -> Verified:
    """Generate for a batch at once and one of it alone; compare both, and with the trainer."""
    from harness.adapt.rollout.batcher import Batcher
    from harness.adapt.rollout.generator import Request
    from harness.adapt.rollout.loader import load_hf
    from harness.adapt.rollout.sampling import Sampling, derive_seed

    workers, inputs = context.workers, context.inputs
    generator = load_hf(workers.rollout_config, workers.model_config)
    generator.load_weights(dict(workers.actor.engine.get_per_tensor_param()[0]))
    tokenizer = workers.model_config.tokenizer
    rows = batches.rows(inputs.train, min(inputs.batch, generator.rows))
    requests = [
        Request(
            prompt_ids=tuple(batches.prompt_ids(tokenizer, row)),
            sampling=Sampling(
                max_tokens=inputs.response_length, seed=derive_seed(context.options.seed, number)
            ),
        )
        for number, row in enumerate(rows)
    ]

    async def together() -> list[Any]:
        batcher = Batcher(generator)
        return list(await asyncio.gather(*map(batcher.submit, requests)))

    answers = asyncio.run(together())
    alone = generator.generate([requests[-1]])[0]
    context.responses = list(zip(rows, answers, strict=True))
    difference = _difference(workers, requests, answers)
    tolerance = probs_tolerance(is_tiny=inputs.is_tiny)
    found = []
    if alone != answers[-1]:
        found.append(
            Problem(
                what="a request's result depends on what else is in its batch",
                why="its tokens or log-probabilities differ between alone and together with others",
                todo="report this with the run record: fixed-shape batches must not depend on each other",
            )
        )
    if not difference < tolerance:
        found.append(
            Problem(
                what=f"a token's probability differs by {difference:.3g} between rollout and trainer "
                f"(limit {tolerance:g})",
                why="one of them has another dtype or another attention, or weights did not arrive",
            )
        )
    if found:
        raise RungFailedError(*found)
    tokens = sum(len(a.token_ids) for a in answers)
    return Verified(
        line=f"{tokens} tokens for {len(answers)} prompts; probabilities agree with the trainer's "
        f"to {difference:.1e}; alone and batched are bit-equal",
        details={
            "tokens": tokens,
            "probs_diff_max": difference,
            "tolerance": tolerance,
            "rows": generator.rows,
        },
    )


def _difference(workers: Any, requests: list[Any], answers: list[Any]) -> float:
    """The largest difference of a generated token's probability between rollout and trainer."""
    tensors = batches.padded(
        [list(r.prompt_ids) for r in requests],
        [a.token_ids for a in answers],
        pad_id=workers.model_config.tokenizer.pad_token_id,
    )
    theirs = batches.log_probs(workers.actor, tensors)
    ours = torch.zeros_like(theirs)
    for row, answer in enumerate(answers):
        ours[row, : len(answer.log_probs)] = torch.tensor(answer.log_probs)
    mask = tensors["response_mask"].bool()
    return float((ours.exp() - theirs.exp())[mask].abs().max())
