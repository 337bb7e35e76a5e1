"""Losses, log-probabilities and values of verl's own workers on one batch, for some ways of computing.

``numerics_probe.py FOLDER JSON``: a list of ways, each with its Hydra overrides and its fault; the last line
is a list of what each gave.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import verl  # noqa: F401 - imports the plug-ins

from harness.ladder import batch as batches
from harness.ladder.forward_rung import _advantages, _metrics, _one_batch
from harness.ladder.inputs import prepare
from harness.ladder.options import ClimbOptions
from harness.ladder.overrides import words
from harness.ladder.workers import Workers
from harness.profiles import load


def main(folder: Path, overrides: tuple[str, ...]) -> dict[str, Any]:
    from verl.utils import tensordict_utils as tu
    from verl.workers.utils.padding import no_padding_2_padding

    options, profile = ClimbOptions(overrides=overrides), load("cpu")
    inputs = prepare(options, folder)
    asked = SimpleNamespace(
        options=options, profile=profile, inputs=inputs, words=lambda rung: words(profile, rung, overrides)
    )
    workers = Workers(asked)  # type: ignore[arg-type]
    tokenizer = workers.model_config.tokenizer
    rows = batches.rows(inputs.train, inputs.batch)
    tensors = batches.padded(
        [batches.prompt_ids(tokenizer, row) for row in rows],
        [batches.answer_ids(tokenizer, row, inputs.response_length) for row in rows],
        pad_id=tokenizer.pad_token_id,
    )
    mask = tensors["response_mask"].bool()
    log_probs = batches.log_probs(workers.actor, tensors)
    advantages = _advantages(tensors)
    # Old log-probabilities of another policy: with equal ones every ratio is 1 and the loss hides the model.
    old = log_probs.detach() - 0.1 * advantages
    update = tensors | {"old_log_probs": old, "ref_log_prob": old, "advantages": advantages}
    actor = _metrics(workers.actor.train_mini_batch(batches.unpadded(update, **_one_batch(len(old)))))
    probe = batches.unpadded(tensors, compute_loss=False)
    values = no_padding_2_padding(tu.get(workers.critic.infer_batch(probe), "values"), probe)
    returns = torch.ones_like(values)
    update = tensors | {"values": torch.zeros_like(values), "returns": returns}
    critic = _metrics(workers.critic.train_mini_batch(batches.unpadded(update, **_one_batch(len(values)))))
    return {
        "log_probs": log_probs[mask].double().tolist(),
        "values": values[mask].double().tolist(),
        "losses": [actor["actor/pg_loss"], critic["critic/vf_loss"]],
        "gradients": [actor["grad_norm"], critic["grad_norm"]],
    }


if __name__ == "__main__":
    found = []
    for way in json.loads(sys.argv[2]):
        os.environ["VERLOCK_FAULT"] = way["fault"]
        found.append(main(Path(sys.argv[1]), tuple(way["words"])))
    print("\n" + json.dumps(found))
