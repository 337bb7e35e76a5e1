"""Batched generation whose result for one request does not depend on the others in the batch.

A matrix product's last bits change with its shape, so all shapes are fixed. Prompts are read in blocks of
``block`` rows, padded on the left to a width that follows from the prompt's own length; a prompt that
several requests share, as the samples of a group do, is read once. Then all ``rows`` rows (idle ones are
filled) go on together, their keys and values padded to a bucket that follows from the length as well. All
requests of a batch start at the same step. Measured on tiny and 135M models: tokens and log-probabilities
are bit-equal alone, in threes, in eights and in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from harness.adapt.rollout import lora
from harness.adapt.rollout.sampling import Sampling, choose, noise

SMALLEST_WIDTH = 16
# Requests of one bucket share a batch: up to here the wider keys cost less than a batch more.
SMALLEST_BUCKET = 64
# Prompts that are read at once. In a small model a pass costs its overhead, in a larger one its rows.
SMALL_PARAMETERS = 10_000_000
BLOCK_SMALL, BLOCK_LARGE = 16, 4


@dataclass(frozen=True, kw_only=True)
class Request:
    """One prompt and how to continue it."""

    prompt_ids: tuple[int, ...]
    sampling: Sampling

    @property
    def width(self) -> int:
        """The length that the prompt is padded to where it is read."""
        return max(SMALLEST_WIDTH, padded(len(self.prompt_ids)))

    @property
    def bucket(self) -> int:
        """The length that its keys and values are padded to."""
        return max(SMALLEST_BUCKET, padded(len(self.prompt_ids)))


def padded(length: int) -> int:
    """The next power of two."""
    return 1 << max(length - 1, 0).bit_length()


def block(rows: int, parameters: int) -> int:
    """How many prompts a model of so many parameters reads at once, in batches of ``rows``."""
    return min(rows, BLOCK_SMALL if parameters < SMALL_PARAMETERS else BLOCK_LARGE)


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
        self.block = block(rows, sum(parameter.numel() for parameter in model.parameters()))
        self.eos_ids = frozenset(eos_ids)
        self.pad_id = pad_id
        self._base: dict[str, torch.Tensor] = {}
        """Of the modules that have adapters in them: their weights without."""

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

    def _run(self, requests: Sequence[Request], bucket: int, stop: Callable[[], bool]) -> list[Generation]:
        samplings = [*(r.sampling for r in requests), *[Sampling(max_tokens=0)] * (self.rows - len(requests))]
        answers = [Generation() for _ in requests]
        draws = self._noise(samplings)
        # An idle row continues the first request's prompt; its tokens go nowhere.
        prompts = [*(r.prompt_ids for r in requests), *[requests[0].prompt_ids] * (self.rows - len(requests))]
        if not draws.shape[1]:
            return answers
        logits, cache, mask = self._read(requests, prompts, bucket)
        positions = mask.sum(-1, keepdim=True)
        for drawn in draws.unbind(1):
            if stop():
                for answer, done in zip(answers, self._done(answers, samplings), strict=False):
                    answer.aborted = not done
                break
            tokens, log_probs = choose(logits, samplings, drawn)
            self._collect(answers, samplings, tokens.tolist(), log_probs.tolist())
            if all(self._done(answers, samplings)):
                break
            mask = torch.cat([mask, torch.ones_like(mask[:, :1])], dim=1)
            logits = self._logits(tokens.unsqueeze(1), mask, positions, cache)
            positions = positions + 1
        return answers

    def _read(
        self, requests: Sequence[Request], prompts: Sequence[tuple[int, ...]], bucket: int
    ) -> tuple[torch.Tensor, Any, torch.Tensor]:
        """Each prompt once, in blocks: logits ``(rows, vocab)``, keys and values, mask ``(rows, bucket)``."""
        from transformers import DynamicCache

        widths = {request.prompt_ids: request.width for request in requests}
        places: dict[tuple[int, ...], int] = {}
        read: list[tuple[int, torch.Tensor, Any]] = []
        for width in sorted(set(widths.values())):
            distinct = [ids for ids, own in widths.items() if own == width]
            for start in range(0, len(distinct), self.block):
                together = distinct[start : start + self.block]
                places |= {ids: len(places) + number for number, ids in enumerate(together)}
                ids, mask = self._prompts(together, width)
                cache = DynamicCache()
                positions = (mask.cumsum(-1) - 1).clamp_(min=0)
                logits = self._logits(ids, mask, positions, cache)
                read.append((len(together), logits, cache))
        rows = torch.tensor([places[ids] for ids in prompts], device=self.device)
        lengths = torch.tensor([len(ids) for ids in prompts], device=self.device)
        mask = (torch.arange(bucket, device=self.device) >= (bucket - lengths).unsqueeze(1)).long()
        used = [count for count, _, _ in read]
        joined = DynamicCache()
        for number, blocks in enumerate(zip(*(cache.layers for _, _, cache in read), strict=True)):
            keys = self._joined([one.keys for one in blocks], used, bucket)
            values = self._joined([one.values for one in blocks], used, bucket)
            joined.update(keys[rows], values[rows], number)
            for one in blocks:  # two copies of one layer at a time, not of all
                one.keys = one.values = None
        return torch.cat([logits[:count] for count, logits, _ in read])[rows], joined, mask

    @staticmethod
    def _joined(blocks: Sequence[torch.Tensor], used: Sequence[int], bucket: int) -> torch.Tensor:
        """Blocks ``(block, heads, width, size)`` to ``(prompts, heads, bucket, size)``, zeros on the left."""
        parts = [
            torch.nn.functional.pad(one[:count], (0, 0, bucket - one.shape[2], 0))
            for one, count in zip(blocks, used, strict=True)
        ]
        return torch.cat(parts)

    def _logits(
        self, ids: torch.Tensor, mask: torch.Tensor, positions: torch.Tensor, cache: Any
    ) -> torch.Tensor:
        """The last position's, ``(rows, vocab)`` in float32."""
        output = self.model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )
        return output.logits[:, -1].float()

    def _prompts(self, prompts: Sequence[tuple[int, ...]], width: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Left-padded ids and mask, each ``(block, width)``; an idle row holds one pad token."""
        ids = torch.full((self.block, width), self.pad_id, dtype=torch.long)
        mask = torch.zeros((self.block, width), dtype=torch.long)
        mask[:, -1] = 1
        for row, prompt in enumerate(prompts):
            ids[row, width - len(prompt) :] = torch.tensor(prompt)
            mask[row, width - len(prompt) :] = 1
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
        # What adapters were added to is replaced.
        self._base = {name: tensor for name, tensor in self._base.items() if name not in tensors}
        with torch.no_grad():
            for name, tensor in tensors.items():
                if known[name].shape != tensor.shape:
                    message = (
                        f"{name}: got shape {tuple(tensor.shape)}, the model has {tuple(known[name].shape)}"
                    )
                    raise ValueError(message)
                known[name].copy_(tensor)
        return set(tensors)

    def load_adapters(self, tensors: Mapping[str, torch.Tensor], scale: float) -> set[str]:
        """Put LoRA adapters, all of them, into the weights as they were without; returns their names."""
        current = self.model.state_dict()
        found = lora.merged(tensors, scale, {**current, **self._base})
        base = {name: self._base[name] if name in self._base else current[name].clone() for name in found}
        self.load_weights(found)
        self._base |= base
        return set(found)

    def parameter_names(self) -> set[str]:
        """The names that a full weight update must cover."""
        return {name for name, _ in self.model.named_parameters()}
