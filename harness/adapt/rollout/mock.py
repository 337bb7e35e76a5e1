"""The ``mock`` rollout: the interface of ``hf`` with no model behind it.

Tokens come from the request's seed, all equally likely. It shows that trainer, agent loop, reward and
weight transport fit together; it says nothing about generation, and the rung that uses it says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import torch

from harness.adapt.rollout import lora
from harness.adapt.rollout.generator import Generation, Request
from harness.adapt.rollout.sampling import noise


class MockGenerator:
    """Answers like :class:`~harness.adapt.rollout.generator.Generator`, by dice."""

    def __init__(
        self, *, vocabulary: int, shapes: Mapping[str, torch.Size], rows: int, eos_ids: Iterable[int]
    ) -> None:
        """``shapes`` are those of the model's parameters: weight updates are checked against them."""
        self.vocabulary = vocabulary
        self.shapes = dict(shapes)
        self.rows = rows
        self.eos_ids = frozenset(eos_ids)
        self.device = "cpu"

    def generate(
        self, requests: Sequence[Request], stop: Callable[[], bool] = lambda: False
    ) -> list[Generation]:
        """One uniformly drawn token after the other, until the end token or the limit."""
        answers = []
        for request in requests:
            answer = Generation(aborted=stop())
            for draw in [] if answer.aborted else noise(request.sampling).tolist():
                answer.token_ids.append(int(draw * self.vocabulary))
                answer.log_probs.append(-math.log(self.vocabulary))
                if answer.token_ids[-1] in self.eos_ids and not request.sampling.ignore_eos:
                    break
            answers.append(answer)
        return answers

    def load_weights(self, tensors: Mapping[str, torch.Tensor]) -> set[str]:
        """Check names and shapes, as the real one does, and keep nothing."""
        for name, tensor in tensors.items():
            if self.shapes.get(name) != tensor.shape:
                message = f"{name}: got shape {tuple(tensor.shape)}, the model has {self.shapes.get(name)}"
                raise ValueError(message)
        return set(tensors)

    def load_adapters(self, tensors: Mapping[str, torch.Tensor], scale: float) -> set[str]:
        """Check that each LoRA adapter fits its module, as the real one does, and keep nothing."""
        base = {name: torch.empty(shape, device="meta") for name, shape in self.shapes.items()}
        return set(lora.merged(tensors, scale, base))

    def parameter_names(self) -> set[str]:
        """The names that a full weight update must cover."""
        return set(self.shapes)
