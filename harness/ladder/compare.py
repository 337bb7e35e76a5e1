"""The first rungs on two devices: the same model, batch and seeds, and how far the results are apart.

Plain transformers and the harness's own generator on both sides. verl's engine runs on neither MPS nor two
devices at once, so training is not compared: on a Mac it stays on the CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast, get_args

from harness.adapt.settings import Device
from harness.errors import OverrideError, Problem, RungFailedError, WrongMachineError
from harness.ladder.context import Context, Verified
from harness.ladder.divergence import Divergence, limits
from harness.ladder.options import ORDER, ClimbOptions, RungName
from harness.ladder.rungs import rung

LAST: RungName = "rollout"


@dataclass(frozen=True, kw_only=True)
class Pair:
    """The two devices. ``prepare`` is called with each side's model after it was loaded."""

    first: Device
    second: Device
    prepare: Callable[[str, Any], None] = lambda _side, _model: None


def pair(device: str | None, other: str | None, options: ClimbOptions) -> Pair | None:
    """The devices to compare; none where nothing of the kind was asked for.

    Raises:
        OverrideError: a device that is none, one alone, or rungs that cannot be compared.
    """
    if device is None and other is None:
        return None
    known = get_args(Device)
    problems = [
        Problem(what=f"{flag} {value} is no device", todo=f"one of: {', '.join(known)}")
        for flag, value in (("--device", device), ("--compare", other))
        if value is not None and value not in known
    ]
    if device is None or other is None:
        problems.append(
            Problem(
                what="--device and --compare go together",
                why="verl trains on no other device than the profile's; another one can only be compared",
                todo=f"write --to {LAST} --device mps --compare cpu",
            )
        )
    if ORDER.index(options.last) > ORDER.index(LAST):
        problems.append(
            Problem(
                what=f"--to {options.last} cannot be compared",
                why="MPS has no process-group backend, so verl's trainer runs on the CPU alone",
                todo=f"--to {LAST}",
            )
        )
    if problems:
        raise OverrideError(*problems)
    return Pair(first=cast(Device, device), second=cast(Device, other))


def usable(device: Device) -> None:
    """Compute something small on the device.

    Raises:
        WrongMachineError: it is not there, or cannot multiply.
    """
    import torch

    try:
        ones = torch.ones(4, 4, device=device)
        right = float((ones @ ones).sum().cpu()) == 64.0
        why = None if right else "a product of ones is not what it must be"
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        why = str(error).splitlines()[0]
    if why:
        raise WrongMachineError(
            f"{device} cannot be computed on here",
            why=why,
            todo="`verlock doctor` says what is missing; --compare cpu with --device cpu works everywhere",
        )


def steps(options: ClimbOptions, devices: Pair) -> list[tuple[str, Callable[[Context], Verified]]]:
    """The rungs: those without a device as always, the others on both."""
    compared = {"forward": forward, "rollout": rollout}
    return [
        (name, partial(compared[name], devices=devices) if name in compared else rung(name))
        for name in options.rungs
    ]


def forward(context: Context, *, devices: Pair) -> Verified:
    """Log-probabilities of the ground truths, and the gradient of a policy loss."""
    from harness.ladder import batch as batches

    tokenizer = _tokenizer(context)
    rows = batches.rows(context.inputs.train, context.inputs.batch)
    tensors = batches.padded(
        [batches.prompt_ids(tokenizer, row) for row in rows],
        [batches.answer_ids(tokenizer, row, context.inputs.response_length) for row in rows],
        pad_id=tokenizer.pad_token_id,
    )
    first, second = (_evaluate(_model(context, devices, side), tensors, gradients=True) for side in (0, 1))
    allowed = limits(devices.first, devices.second)
    mask = tensors["response_mask"].bool()
    found = [
        _log_probs(first["log_probs"][mask], second["log_probs"][mask], allowed["log-probability"]),
        _gradients(first["gradients"], second["gradients"], allowed["gradient"]),
    ]
    return _verified(found, devices, f"{int(mask.sum())} tokens forward and backward")


def rollout(context: Context, *, devices: Pair) -> Verified:
    """Generated tokens, and the log-probabilities that the other device gives to the first one's tokens."""
    from harness.adapt.rollout.generator import Generator, Request
    from harness.adapt.rollout.sampling import Sampling, derive_seed
    from harness.ladder import batch as batches

    tokenizer, inputs = _tokenizer(context), context.inputs
    rows = batches.rows(inputs.train, inputs.batch)
    requests = [
        Request(
            prompt_ids=tuple(batches.prompt_ids(tokenizer, row)),
            sampling=Sampling(
                max_tokens=inputs.response_length, seed=derive_seed(context.options.seed, number)
            ),
        )
        for number, row in enumerate(rows)
    ]
    answers = []
    for side, device in enumerate((devices.first, devices.second)):
        eos, pad = tokenizer.eos_token_id, tokenizer.pad_token_id
        model = _model(context, devices, side)
        generator = Generator(model, device=device, rows=len(requests), eos_ids=[eos], pad_id=pad)
        answers.append(_answers(generator, requests))
    tensors = batches.padded(
        [list(request.prompt_ids) for request in requests],
        [answer.token_ids for answer in answers[0]],
        pad_id=tokenizer.pad_token_id,
    )
    import torch

    forced = _evaluate(_model(context, devices, 1), tensors, gradients=False)["log_probs"]
    drawn = torch.zeros_like(forced)
    for row, answer in enumerate(answers[0]):
        drawn[row, : len(answer.log_probs)] = torch.tensor(answer.log_probs)
    mask = tensors["response_mask"].bool()
    same = sum(_common(a.token_ids, b.token_ids) for a, b in zip(*answers, strict=True))
    total = int(mask.sum())
    # The generator works in batches of fixed shape with a cache: even on one device it rounds otherwise than
    # the forward pass over whole rows that the tokens are judged by. Measured 2e-6; the tokens must be equal.
    allowed = max(limits(devices.first, devices.second)["log-probability"], 1e-5)
    found = [_log_probs(drawn[mask], forced[mask], allowed)]
    if devices.first == devices.second:
        found.append(Divergence(name="tokens", largest=float(total - same), limit=0.0))
    return _verified(found, devices, f"{same} of {total} tokens equal", tokens=total, equal=same)


def _answers(generator: Any, requests: Sequence[Any]) -> list[Any]:
    """All answers in the order of the requests, generated a bucket at a time."""
    found: dict[int, Any] = {}
    for bucket in {one.bucket for one in requests}:
        places = [n for n, one in enumerate(requests) if one.bucket == bucket]
        found |= zip(places, generator.generate([requests[n] for n in places]), strict=True)
    return [found[n] for n in range(len(requests))]


def _common(first: Sequence[int], second: Sequence[int]) -> int:
    """How many tokens are equal before the first that is not: what comes after has another prompt."""
    pairs = zip(first, second, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(first), len(second)))


def _tokenizer(context: Context) -> Any:
    from harness.data import model_check

    return model_check.load_tokenizer(context.inputs.model)


def _model(context: Context, devices: Pair, side: int) -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(
        context.inputs.model, dtype=torch.float32, attn_implementation=context.profile.numerics.attention
    )
    devices.prepare(("first", "second")[side], model)
    return model.to((devices.first, devices.second)[side]).eval()


def _evaluate(model: Any, tensors: dict[str, Any], *, gradients: bool) -> dict[str, Any]:
    """Log-probabilities ``(b, r)`` of the responses, and each parameter's gradient, on the CPU in fp32."""
    import torch
    from verl.utils.torch_functional import logprobs_from_logits

    here = {name: tensor.to(model.device) for name, tensor in tensors.items()}
    inputs = {name: here[name] for name in ("input_ids", "attention_mask", "position_ids")}
    with torch.set_grad_enabled(gradients):
        logits = model(**inputs, use_cache=False).logits
        length = here["responses"].shape[1]
        log_probs = logprobs_from_logits(logits[:, -length - 1 : -1].float(), here["responses"])
    found: dict[str, Any] = {"log_probs": log_probs.detach().float().cpu()}
    if gradients:
        generator = torch.Generator().manual_seed(0)
        advantages = torch.randn(log_probs.shape, generator=generator).to(model.device)
        mask = here["response_mask"]
        (-(log_probs * advantages * mask).sum() / mask.sum()).backward()
        found["gradients"] = {
            name: p.grad.detach().float().cpu() for name, p in model.named_parameters() if p.grad is not None
        }
    return found


def _log_probs(first: Any, second: Any, limit: float) -> Divergence:
    differences = (first - second).abs()
    where = int(differences.argmax())
    return Divergence(
        name="log-probability", largest=float(differences.max()), limit=limit, at=f"token {where}"
    )


def _gradients(first: dict[str, Any], second: dict[str, Any], limit: float) -> Divergence:
    """Length of the difference by the gradient's length; ``at`` is the parameter with the largest share."""
    shares = {
        name: float((first[name] - second[name]).norm() / first[name].norm().clamp(min=1e-12))
        for name in first
    }
    apart = sum(float((first[name] - second[name]).norm() ** 2) for name in first) ** 0.5
    length = sum(float(gradient.norm() ** 2) for gradient in first.values()) ** 0.5
    return Divergence(
        name="gradient", largest=apart / length, limit=limit, at=max(shares, key=lambda n: shares[n])
    )


def _verified(found: Sequence[Divergence], devices: Pair, what: str, **details: Any) -> Verified:
    far = [one.problem(devices.first, devices.second) for one in found if not one.within]
    if far:
        raise RungFailedError(*far)
    numbers = {one.name: {"largest": one.largest, "limit": one.limit, "at": one.at} for one in found}
    return Verified(
        line=f"{devices.first} and {devices.second}: {', '.join(one.told() for one in found)}; {what}",
        details={"devices": [devices.first, devices.second], "divergence": numbers, **details},
    )
