"""Run by a process of its own: verl's real workers on a real model, and what torch's CPU allocator gave out.

Prints one JSON document: bytes in use at most during inference, during the second update, and after it.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from harness.adapt.settings import Settings

os.environ |= Settings().environment() | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}

import torch
import verl  # noqa: F401 - imports the plug-in

from harness.data import tiny_tokenizer
from harness.ladder import batch as batches
from harness.ladder.forward_rung import _one_batch
from harness.ladder.inputs import prepare
from harness.ladder.options import ClimbOptions
from harness.ladder.overrides import words
from harness.ladder.workers import Workers
from harness.profiles import load

PHASES = ("infer", "first update", "update")


def save(config: dict[str, Any], folder: Path) -> None:
    """A random model of this shape, and the tiny tokenizer."""
    from transformers import AutoConfig, AutoModelForCausalLM

    values = {key: value for key, value in config.items() if key != "model_type"}
    made = AutoModelForCausalLM.from_config(AutoConfig.for_model(config["model_type"], **values))
    made.to(torch.float32).save_pretrained(folder)
    tiny_tokenizer.make().save_pretrained(folder)


def batch(rows: int, prompt: int, response: int) -> dict[str, torch.Tensor]:
    """Rows of full length, but for the last, which is a token shorter: so that verl needs a mask."""
    prompts = [[5] * prompt for _ in range(rows)]
    return batches.padded(prompts, [[7] * (response - (row == rows - 1)) for row in range(rows)], pad_id=0)


def extras(like: torch.Tensor, kind: str) -> dict[str, torch.Tensor]:
    names = {"actor": ("old_log_probs", "ref_log_prob", "advantages"), "critic": ("values", "returns")}
    return {name: torch.zeros(like.shape, dtype=torch.float32) for name in names[kind]}


def act(worker: Any, kind: str, tensors: dict[str, torch.Tensor]) -> None:
    """Inference and two updates; the optimiser's state is there from the first on."""
    with torch.profiler.record_function("verlock infer"):
        settings = {"calculate_entropy": True} if kind == "actor" else {}
        worker.infer_batch(batches.unpadded(tensors, compute_loss=False, **settings))
    for name in ("first update", "update"):
        data = batches.unpadded(
            tensors | extras(tensors["response_mask"], kind),
            calculate_entropy=False,
            **_one_batch(len(tensors["prompts"])),
        )
        with torch.profiler.record_function(f"verlock {name}"):
            worker.train_mini_batch(data)


def peaks(profiler: Any) -> dict[str, int]:
    """The allocator's bytes in use, at most in each phase, and at the end."""
    spans: dict[str, tuple[int, int]] = {}
    used: list[tuple[int, int]] = []
    queue = list(profiler.profiler.kineto_results.experimental_event_tree())
    while queue:
        event = queue.pop()
        queue += event.children
        if event.name.startswith("verlock "):
            spans[event.name.removeprefix("verlock ")] = (event.start_time_ns, event.end_time_ns)
        if hasattr(event.extra_fields, "total_allocated"):
            used.append((event.start_time_ns, event.extra_fields.total_allocated))
    used.sort()
    found = {
        name: max(size for time, size in used if start <= time <= end) for name, (start, end) in spans.items()
    }
    return {**found, "after": used[-1][1]}


def main(folder: Path, case: dict[str, Any]) -> dict[str, int]:
    """Build the worker under the profiler's eyes and let it act."""
    save(case["config"], folder / "model")
    options = ClimbOptions(model=str(folder / "model"), overrides=tuple(case["overrides"]))
    inputs = prepare(options, folder)
    context = SimpleNamespace(
        options=options,
        inputs=inputs,
        profile=load("cpu"),
        words=lambda rung: words(load("cpu"), rung, options.overrides),
    )
    workers = Workers(context)  # type: ignore[arg-type]
    tensors = batch(case["rows"], case["prompt"], case["response"])
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as profiler:
        act(getattr(workers, case["role"]), case["role"], tensors)
    return peaks(profiler)


if __name__ == "__main__":
    result = main(Path(sys.argv[1]), json.loads(sys.argv[2]))
    sys.__stdout__.write("\n" + json.dumps(result) + "\n")  # type: ignore[union-attr]
