"""Batched generation whose result for one request does not depend on the others in the batch.

A matrix product's last bits change with its shape, so each batch has one fixed shape: always ``rows``
rows (idle ones are filled), prompts padded on the left to a bucket that depends on the prompt's own
length alone, and all requests of a batch start at the same step. Measured on tiny and 135M models:
tokens and log-probabilities are bit-equal alone, in threes, in eights and in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from harness.adapt.rollout.sampling import Sampling, choose, noise

SMALLEST_BUCKET = 16


@dataclass(frozen=True, kw_only=True)
class Request:
    """One prompt and how to continue it."""

    prompt_ids: tuple[int, ...]
    sampling: Sampling

    @property
    def bucket(self) -> int:
        """The padded prompt length: the next power of two."""
        return max(SMALLEST_BUCKET, 1 << (len(self.prompt_ids) - 1).bit_length())


@dataclass(kw_only=True)
class Generation:
    """One response: its tokens (with the end token, if it came), log-probabilities and why it ended."""

    token_ids: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    aborted: bool = False


class Generator:
    """A causal language model that answers up to ``rows`` requests of one bucket at a time."""

    def __init__(self, model: Any, *, device: str, rows: int, eos_ids: Iterable[int], pad_id: int) -> None:
        """Move ``model`` (a transformers causal LM) to ``device`` and keep it in evaluation mode."""
        if device == "cpu":
            # With more threads a product's rows are split between them, and a row's last bits then depend
            # on its place: measured with 2 threads, rows 4 to 7 of 8 differ from row 0 (torch 2.13, AVX-512).
            torch.set_num_threads(1)
        self.model = model.to(device).eval().requires_grad_(requires_grad=False)
        self.device = device
        self.rows = rows
        self.eos_ids = frozenset(eos_ids)
        self.pad_id = pad_id

    def generate(
        self, requests: Sequence[Request], stop: Callable[[], bool] = lambda: False
    ) -> list[Generation]:
        """Answer ``requests`` (at most ``rows``, all of one bucket). ``stop`` is asked before each token."""
        buckets = {request.bucket for request in requests}
        if len(requests) > self.rows or len(buckets) != 1:
            message = (
                f"{len(requests)} requests in buckets {sorted(buckets)}: at most {self.rows}, of one bucket"
            )
            raise ValueError(message)
        with torch.inference_mode():
            return self._run(requests, buckets.pop(), stop)

    def _run(self, requests: Sequence[Request], width: int, stop: Callable[[], bool]) -> list[Generation]:
        from transformers import DynamicCache

        samplings = [*(r.sampling for r in requests), *[Sampling(max_tokens=0)] * (self.rows - len(requests))]
        answers = [Generation() for _ in requests]
        ids, mask = self._prompts(requests, width)
        draws = self._noise(samplings)
        positions = (mask.cumsum(-1) - 1).clamp_(min=0)
        cache = DynamicCache()
        for step in range(draws.shape[1]):
            if stop():
                for answer, done in zip(answers, self._done(answers, samplings), strict=False):
                    answer.aborted = not done
                break
            logits = (
                self.model(
                    input_ids=ids,
                    attention_mask=mask,
                    position_ids=positions,
                    past_key_values=cache,
                    use_cache=True,
                    logits_to_keep=1,
                )
                .logits[:, -1]
                .float()
            )
            tokens, log_probs = choose(logits, samplings, draws[:, step])
            self._collect(answers, samplings, tokens.tolist(), log_probs.tolist())
            if all(self._done(answers, samplings)):
                break
            ids = tokens.unsqueeze(1)
            positions = positions[:, -1:] + 1
            mask = torch.cat([mask, torch.ones_like(mask[:, :1])], dim=1)
        return answers

    def _prompts(self, requests: Sequence[Request], width: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Left-padded ids and mask, each ``(rows, width)``; an idle row holds one pad token."""
        ids = torch.full((self.rows, width), self.pad_id, dtype=torch.long)
        mask = torch.zeros((self.rows, width), dtype=torch.long)
        mask[:, -1] = 1
        for row, request in enumerate(requests):
            length = len(request.prompt_ids)
            ids[row, width - length :] = torch.tensor(request.prompt_ids)
            mask[row, width - length :] = 1
        return ids.to(self.device), mask.to(self.device)

    @staticmethod
    def _noise(samplings: Sequence[Sampling]) -> torch.Tensor:
        """The uniform numbers of all rows, ``(rows, longest max_tokens)``."""
        longest = max(s.max_tokens for s in samplings)
        table = torch.zeros((len(samplings), longest), dtype=torch.float64)
        for row, sampling in enumerate(samplings):
            table[row, : sampling.max_tokens] = noise(sampling)
        return table

    def _done(self, answers: Sequence[Generation], samplings: Sequence[Sampling]) -> list[bool]:
        return [
            len(answer.token_ids) >= sampling.max_tokens
            or (
                not sampling.ignore_eos
                and answer.token_ids[-1:] != []
                and answer.token_ids[-1] in self.eos_ids
            )
            for answer, sampling in zip(answers, samplings, strict=False)
        ]

    def _collect(
        self,
        answers: Sequence[Generation],
        samplings: Sequence[Sampling],
        tokens: Sequence[int],
        log_probs: Sequence[float],
    ) -> None:
        """Append a step's tokens to the responses that are still open."""
        open_rows = [not done for done in self._done(answers, samplings)]
        for row, answer in enumerate(answers):
            if open_rows[row]:
                answer.token_ids.append(tokens[row])
                answer.log_probs.append(log_probs[row])

    def load_weights(self, tensors: Mapping[str, torch.Tensor]) -> set[str]:
        """Copy named tensors into the model; returns the names. An unknown name is an error."""
        known = dict(self.model.named_parameters()) | dict(self.model.named_buffers())
        # A tied output layer is no parameter of its own here, but the trainer sends it as one.
        known |= {
            name: tensor
            for name, tensor in self.model.state_dict(keep_vars=True).items()
            if name not in known
        }
        unknown = sorted(set(tensors) - set(known))
        if unknown:
            message = f"weights for parameters that the rollout's model does not have: {unknown[:5]}"
            raise KeyError(message)
        with torch.no_grad():
            for name, tensor in tensors.items():
                if known[name].shape != tensor.shape:
                    message = (
                        f"{name}: got shape {tuple(tensor.shape)}, the model has {tuple(known[name].shape)}"
                    )
                    raise ValueError(message)
                known[name].copy_(tensor)
        return set(tensors)

    def parameter_names(self) -> set[str]:
        """The names that a full weight update must cover."""
        return {name for name, _ in self.model.named_parameters()}
