"""The model, the data and their lengths, made or taken before the first rung that needs them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from harness.data import tiny_model, tiny_task
from harness.ladder.options import GROUPED, TINY, ClimbOptions


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """Paths, and the shapes of a batch. Lengths in tokens; ``batch`` in prompts, ``group`` in responses."""

    model: Path
    train: Path
    val: Path
    is_tiny: bool
    prompt_length: int
    response_length: int
    batch: int
    group: int


def prepare(options: ClimbOptions, folder: Path) -> Inputs:
    """Make the tiny model and task in ``folder`` where nothing else was given."""
    tiny_data = options.data == TINY
    model = Path(options.model).expanduser().resolve()
    train = val = Path(options.data).expanduser().resolve()
    if options.model == TINY:
        model = tiny_model.write(folder / "model", options.seed)
    if tiny_data:
        train, val = tiny_task.write(folder, rows=64, seed=options.seed)
    return Inputs(
        model=model,
        train=train,
        val=val,
        is_tiny=tiny_data and options.model == TINY,
        prompt_length=64 if tiny_data else 512,
        response_length=16 if options.model == TINY else 32,
        batch=8 if options.model == TINY else 4,
        group=4 if options.algorithm in GROUPED else 1,
    )
