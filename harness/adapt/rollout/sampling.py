"""Sampling parameters of one request, and the choice of the next token.

The noise of a request is drawn ahead from its own seed, one uniform number a token, and a token is
found by inverting the row's cumulative distribution. So a row's tokens depend on its own logits and
seed alone, never on its neighbours or their number.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

# What verl's agent loops send besides these: neutral values of vLLM options (agent_loop.py).
_NEUTRAL: Mapping[str, tuple[object, ...]] = {
    "repetition_penalty": (1, 1.0, None),
    "presence_penalty": (0, 0.0, None),
    "frequency_penalty": (0, 0.0, None),
    "min_p": (0, 0.0, None),
    "n": (1, None),
    "stop": (None, [], ()),
    "detokenize": (True, False, None),
    "include_stop_str_in_output": (True, False, None),
}


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How to sample one response. ``top_k`` -1 and ``top_p`` 1 mean no limit; temperature 0 is greedy."""

    temperature: float = 1.0
    top_k: int = -1
    top_p: float = 1.0
    max_tokens: int = 16
    seed: int = 0
    log_probs: bool = True
    ignore_eos: bool = False


def derive_seed(*parts: object) -> int:
    """A 63-bit seed from values that are the same in each run (no ``hash()``: it is salted)."""
    digest = hashlib.sha256(repr(parts).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def parse(params: Mapping[str, Any], *, seed: int, room: int) -> Sampling:
    """Read verl's sampling parameters. ``room`` is how many tokens fit at most.

    Raises ``ValueError`` for an option with effect that this backend does not have: sampling that
    silently ignores a penalty is not the sampling that was asked for.
    """
    given = dict(params)
    limits = (given.pop("max_tokens", None), given.pop("max_new_tokens", None))
    limit = next((wanted for wanted in limits if wanted is not None), room)
    own_seed = given.pop("seed", None)
    sampling = Sampling(
        temperature=float(given.pop("temperature", 1.0)),
        top_k=int(given.pop("top_k", -1)),
        top_p=float(given.pop("top_p", 1.0)),
        max_tokens=max(0, min(int(limit), room)),
        seed=seed if own_seed is None else int(own_seed),
        # vLLM's `logprobs` is a count, verl's agent loop sends a bool: both mean "wanted".
        log_probs=given.pop("logprobs", False) not in (False, None),
        ignore_eos=bool(given.pop("ignore_eos", False)),
    )
    unknown = {key: value for key, value in given.items() if value not in _NEUTRAL.get(key, ())}
    if unknown:
        message = f"the hf rollout cannot honour these sampling parameters: {unknown}"
        raise ValueError(message)
    return sampling


def noise(sampling: Sampling) -> torch.Tensor:
    """The request's uniform numbers in [0, 1), one a token, shape ``(max_tokens,)``, float64."""
    generator = torch.Generator().manual_seed(sampling.seed)
    return torch.rand(sampling.max_tokens, generator=generator, dtype=torch.float64)


def _filtered(log_probs: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    """Apply top-k, then top-p to one row of log-probabilities ``(vocab,)``, as vLLM orders them."""
    ordered, index = log_probs.sort(descending=True, stable=True)
    keep = torch.ones_like(ordered, dtype=torch.bool)
    if 0 < sampling.top_k < ordered.numel():
        keep[sampling.top_k :] = False
    if sampling.top_p < 1.0:
        kept = torch.where(keep, ordered.exp(), 0.0)
        before = kept.cumsum(0) - kept
        keep &= before < sampling.top_p * kept.sum()
        keep[0] = True
    return torch.full_like(log_probs, -torch.inf).scatter(0, index[keep], ordered[keep])


def choose(
    logits: torch.Tensor, samplings: Sequence[Sampling], draws: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Choose each row's next token.

    ``logits`` is ``(rows, vocab)`` in float32, ``draws`` ``(rows,)`` in float64. Returns the tokens
    ``(rows,)`` and their log-probabilities ``(rows,)`` under the *unfiltered* distribution at the
    row's temperature: that is what verl's trainer computes for ``old_log_probs``, and the two are
    compared. A greedy row reports its log-probability at temperature 1.
    """
    temperatures = torch.tensor(
        [s.temperature if s.temperature > 0 else 1.0 for s in samplings], device=logits.device
    )
    log_probs = torch.log_softmax(logits / temperatures.unsqueeze(1), dim=-1)
    weights = log_probs
    if any(s.top_k > 0 or s.top_p < 1.0 for s in samplings):
        weights = torch.stack([_filtered(row, s) for row, s in zip(log_probs, samplings, strict=True)])
    cumulative = weights.to(torch.float64 if logits.device.type != "mps" else torch.float32).exp().cumsum(-1)
    target = draws.to(cumulative.dtype).to(logits.device).unsqueeze(1) * cumulative[:, -1:]
    sampled = torch.searchsorted(cumulative, target, right=True).squeeze(1).clamp_(max=logits.shape[1] - 1)
    greedy = torch.tensor([s.temperature <= 0 for s in samplings], device=logits.device)
    tokens = torch.where(greedy, logits.argmax(-1), sampled)
    return tokens, log_probs.gather(1, tokens.unsqueeze(1)).squeeze(1)
