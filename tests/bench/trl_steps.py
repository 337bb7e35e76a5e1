"""GRPO by TRL on the same model, rows, reward and shape; runs in an environment of its own.

Prints the median seconds of a step, without the first ones. Nothing of the harness is imported.
"""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow.parquet as pq
import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer


def digits(completions: list[Any], **_: Any) -> list[float]:
    """Share of digits in each response, as harness.data.rewards.digits."""
    texts = [one[0]["content"] if isinstance(one, list) else one for one in completions]
    return [sum(char in "0123456789" for char in text) / len(text) if text else 0.0 for text in texts]


def drawn(completions: list[Any], **_: Any) -> list[float]:
    """Any number, as rewards.drawn."""
    return [random.random() for _ in completions]


class Clock(TrainerCallback):
    """When each step ended."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        self.times.append(time.perf_counter())

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.times.append(time.perf_counter())


def main() -> None:
    model, train, reward, *numbers = sys.argv[1:]
    prompts, group, response, steps, warm = map(int, numbers)
    torch.manual_seed(1)
    rows = Dataset.from_list([{"prompt": p} for p in pq.read_table(train)["prompt"].to_pylist()])
    config = GRPOConfig(
        output_dir=str(Path.cwd() / "trl"),
        per_device_train_batch_size=prompts * group,
        num_generations=group,
        max_completion_length=response,
        max_steps=steps,
        learning_rate=1e-3,
        beta=0.0,
        use_cpu=True,
        bf16=False,
        fp16=False,
        gradient_checkpointing=False,
        logging_strategy="no",
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    clock = Clock()
    trainer = GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32),
        processing_class=AutoTokenizer.from_pretrained(model),
        reward_funcs={"digits": digits, "drawn": drawn}[reward],
        args=config,
        train_dataset=rows,
        callbacks=[clock],
    )
    trainer.train()
    took = [b - a for a, b in zip(clock.times, clock.times[1:], strict=False)]
    print(f"seconds: {median(took[warm:])}")


if __name__ == "__main__":
    main()
