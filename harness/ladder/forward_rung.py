"""``forward``: verl's own losses on a real batch, forward and backward, in this process.

On the first update the policy is still the one that gave the old log-probabilities, so every ratio is
1 and the losses are known without verl: the policy loss is minus the mean advantage, the value loss
half the mean squared error. A flipped sign or a wrong mask shows here, in seconds.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from harness.errors import Problem, RungFailedError
from harness.ladder import batch as batches
from harness.ladder.compose import verl_folder
from harness.ladder.context import Context, Verified

# fp32 sums of a few hundred terms in two orders: measured differences are below 1e-6 of the value.
TOLERANCE = 1e-4
# The dtype of the weights themselves; what they are computed in may be another (mixed precision).
MODEL_DTYPE = "actor_rollout_ref.actor.fsdp_config.model_dtype"


def climb(context: Context) -> Verified:
    """One update of actor and critic on prompts with their ground truth as responses."""
    workers, inputs = context.workers, context.inputs
    tokenizer = workers.model_config.tokenizer
    rows = batches.rows(inputs.train, inputs.batch)
    tensors = batches.padded(
        [batches.prompt_ids(tokenizer, row) for row in rows],
        [batches.answer_ids(tokenizer, row, inputs.response_length) for row in rows],
        pad_id=tokenizer.pad_token_id,
    )
    actor = _update_actor(workers, tensors)
    found = actor.pop("problems")
    details: dict[str, Any] = {"actor": actor, "tokens": int(tensors["response_mask"].sum())}
    if context.options.algorithm == "ppo":
        details["critic"] = _update_critic(workers, tensors)
        found += details["critic"].pop("problems")
    wanted = str(context.profile.overrides()[MODEL_DTYPE])
    found += _dtypes(workers.actor, wanted)
    if found:
        raise RungFailedError(*found)
    line = f"verl's ppo_loss {actor['loss']:.4f} on {details['tokens']} tokens is minus the mean advantage"
    if "critic" in details:
        line += f", its value_loss {details['critic']['loss']:.4f} the squared error"
    return Verified(line=f"{line}; gradients finite, weights moved, all {wanted}", details=details)


def _advantages(tensors: dict[str, torch.Tensor]) -> torch.Tensor:
    """Shape ``(b, r)``. Not zero on average, nor on padding: no wrong sign and no wrong mask can hide."""
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(tensors["response_mask"].shape, generator=generator)
    return noise + 0.5


def _update_actor(workers: Any, tensors: dict[str, torch.Tensor]) -> dict[str, Any]:
    old = batches.log_probs(workers.actor, tensors)
    advantages = _advantages(tensors)
    data = batches.unpadded(
        tensors | {"old_log_probs": old, "ref_log_prob": old, "advantages": advantages},
        **_one_batch(len(old)),
    )
    before = _checksum(workers.actor)
    metrics = _metrics(workers.actor.train_mini_batch(data))
    mask = tensors["response_mask"].bool()
    expected = -float(advantages[mask].mean())
    return _judge("actor/pg_loss", "policy loss", metrics, expected, workers.actor, before)


def _update_critic(workers: Any, tensors: dict[str, torch.Tensor]) -> dict[str, Any]:
    from verl.utils import tensordict_utils as tu
    from verl.workers.utils.padding import no_padding_2_padding

    probe = batches.unpadded(tensors, compute_loss=False)
    values = no_padding_2_padding(tu.get(workers.critic.infer_batch(probe), "values"), probe)
    returns = values + _advantages(tensors)
    data = batches.unpadded(tensors | {"values": values, "returns": returns}, **_one_batch(len(values)))
    before = _checksum(workers.critic)
    metrics = _metrics(workers.critic.train_mini_batch(data))
    expected = _value_loss(returns - values, tensors["response_mask"].bool(), workers.config.critic)
    return _judge("critic/vf_loss", "value loss", metrics, expected, workers.critic, before)


def _value_loss(errors: torch.Tensor, mask: torch.Tensor, config: Any) -> float:
    """Half the mean squared error of what counts; errors and mask are ``(b, r)``."""
    from harness.adapt.verls import value_loss_parts

    parts = value_loss_parts(len(errors), int(config.ppo_micro_batch_size_per_gpu))
    means = [0.5 * float((errors[part][mask[part]] ** 2).mean()) for part in parts]
    return sum(means) / len(means)


def _one_batch(size: int) -> dict[str, Any]:
    return {
        "global_batch_size": size,
        "mini_batch_size": size,
        "epochs": 1,
        "seed": 0,
        "dataloader_kwargs": {"shuffle": False},
    }


def _metrics(output: Any) -> dict[str, float]:
    """The worker's metrics as numbers; each is a list with an entry a mini batch or micro batch."""
    from verl.utils import tensordict_utils as tu
    from verl.utils.metric import reduce_metrics

    return {key: float(value) for key, value in reduce_metrics(dict(tu.get(output, "metrics"))).items()}


def _judge(
    key: str, name: str, metrics: dict[str, float], expected: float, worker: Any, before: float
) -> dict[str, Any]:
    loss, norm = metrics[key], metrics["grad_norm"]
    problems = []
    if not math.isclose(loss, expected, rel_tol=TOLERANCE, abs_tol=TOLERANCE):
        problems.append(
            Problem(
                what=f"verl's {name} is {loss:.6f}, but must be {expected:.6f} on the first update",
                why="with unchanged weights every ratio is 1: its sign, mask or normalisation is wrong",
                todo=f"read workers/utils/losses.py and trainer/ppo/core_algos.py in {verl_folder()}",
            )
        )
    if not (math.isfinite(norm) and norm > 0):
        problems.append(
            Problem(what=f"the gradient norm of the {name} is {norm}", why="nothing can be trained")
        )
    if _checksum(worker) == before:
        problems.append(
            Problem(what=f"the optimiser's step on the {name} changed no weight", why="is its rate 0?")
        )
    return {"loss": loss, "expected": expected, "grad_norm": norm, "problems": problems}


def _parameters(worker: Any) -> dict[str, torch.Tensor]:
    return {
        name: p.full_tensor() if hasattr(p, "full_tensor") else p
        for name, p in worker.engine.module.named_parameters()
    }


def _checksum(worker: Any) -> float:
    return sum(float(p.detach().double().abs().sum()) for p in _parameters(worker).values())


def _dtypes(worker: Any, wanted: str) -> list[Problem]:
    from verl.utils.torch_dtypes import PrecisionType

    wrong = {str(p.dtype) for p in _parameters(worker).values()} - {str(PrecisionType.to_dtype(wanted))}
    if not wrong:
        return []
    return [
        Problem(
            what=f"parameters are {', '.join(sorted(wrong))}", why=f"the profile says {wanted}: {MODEL_DTYPE}"
        )
    ]
