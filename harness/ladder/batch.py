"""A batch in the layout of verl's trainer, for the rungs that call its workers directly."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch


def rows(path: Path, count: int) -> list[dict[str, Any]]:
    """The first ``count`` rows of a Parquet file."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        first = next(file.iter_batches(batch_size=count), None)
    return [] if first is None else list(first.to_pylist())


def prompt_ids(tokenizer: Any, row: dict[str, Any]) -> list[int]:
    """The row's chat messages as the agent loop tokenizes them."""
    text = tokenizer.apply_chat_template(row["prompt"], add_generation_prompt=True, tokenize=False)
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def answer_ids(tokenizer: Any, row: dict[str, Any], limit: int) -> list[int]:
    """The row's ground truth as a response that ends, at most ``limit`` tokens."""
    text = str(row["reward_model"]["ground_truth"])
    ids = list(tokenizer(text, add_special_tokens=False)["input_ids"])[: limit - 1]
    return [*ids, tokenizer.eos_token_id]


def padded(
    prompts: Sequence[Sequence[int]], responses: Sequence[Sequence[int]], *, pad_id: int
) -> dict[str, torch.Tensor]:
    """Prompts padded on the left, responses on the right, as verl's agent loop returns them.

    Shapes: ``prompts (b, p)``, ``responses`` and ``response_mask (b, r)``, ``input_ids``,
    ``attention_mask`` and ``position_ids (b, p + r)``.
    """
    width, length = max(map(len, prompts)), max(map(len, responses))
    left = [[pad_id] * (width - len(p)) + list(p) for p in prompts]
    right = [list(r) + [pad_id] * (length - len(r)) for r in responses]
    seen = [[0] * (width - len(p)) + [1] * len(p) for p in prompts]
    mask = torch.tensor([[1] * len(r) + [0] * (length - len(r)) for r in responses])
    attention = torch.cat([torch.tensor(seen), mask], dim=1)
    return {
        "prompts": torch.tensor(left),
        "responses": torch.tensor(right),
        "response_mask": mask,
        "input_ids": torch.cat([torch.tensor(left), torch.tensor(right)], dim=1),
        "attention_mask": attention,
        "position_ids": (attention.cumsum(-1) - 1).clamp(min=0),
    }


def unpadded(tensors: dict[str, torch.Tensor], **settings: Any) -> Any:
    """The TensorDict without padding that verl's workers take; ``settings`` travel as non-tensor data."""
    from verl.utils import tensordict_utils as tu
    from verl.workers.utils.padding import left_right_2_no_padding

    batch = left_right_2_no_padding(tu.get_tensordict(dict(tensors)))
    lengths = tensors["attention_mask"].sum(-1).tolist()
    tu.assign_non_tensor(batch, global_token_num=lengths, temperature=1.0, **settings)
    return batch


def log_probs(actor: Any, tensors: dict[str, torch.Tensor]) -> torch.Tensor:
    """The trainer's log-probabilities of the responses, shape ``(b, r)``; the loss is not computed."""
    from verl.utils import tensordict_utils as tu
    from verl.workers.utils.padding import no_padding_2_padding

    batch = unpadded(tensors, calculate_entropy=True, compute_loss=False)
    return no_padding_2_padding(tu.get(actor.infer_batch(batch), "log_probs"), batch)
