"""``data``: model folder and rows are what verl will really read."""

from __future__ import annotations

from typing import Any

from harness.data import chat_check, model_check, parquet_check
from harness.errors import DataError
from harness.ladder.batch import rows
from harness.ladder.context import Context, Verified


def climb(context: Context) -> Verified:
    """Check files and folder, render one prompt, then let verl's own dataset class read the rows."""
    inputs = context.inputs
    model_check.check(inputs.model)
    summary = parquet_check.check(inputs.train)
    tokenizer = model_check.load_tokenizer(inputs.model)
    first = rows(inputs.train, 1)[0]
    rendered = chat_check.check(
        first["prompt"],
        tokenizer=tokenizer,
        max_prompt_length=inputs.prompt_length,
        where=f"{inputs.train}:row 0",
    )
    read = _as_verl_reads(context, tokenizer)
    return Verified(
        line=f"{read} of {summary.rows} rows read by verl's RLHFDataset; "
        f"the first prompt is {rendered.tokens} tokens and the question survives the chat template",
        details={"rows": summary.rows, "read": read, "first_prompt_tokens": rendered.tokens},
    )


def _as_verl_reads(context: Context, tokenizer: Any) -> int:
    from verl.utils.dataset.rl_dataset import RLHFDataset

    config = context.workers.config.data
    try:
        dataset = RLHFDataset(
            data_files=str(context.inputs.train),
            tokenizer=tokenizer,
            config=config,
            max_samples=config.train_max_samples,
        )
        count, sample = len(dataset), dataset[0]
    except Exception as error:  # verl and datasets raise many kinds for bad rows
        raise DataError(
            f"verl's RLHFDataset cannot read the file: {type(error).__name__}: {error}",
            where=str(context.inputs.train),
        ) from error
    if count < context.inputs.batch:
        raise DataError(
            f"{count} rows are left for a batch of {context.inputs.batch}",
            where=str(context.inputs.train),
            why="too few rows, or prompts over data.max_prompt_length were dropped",
            todo="give more rows, or override data.train_batch_size",
        )
    if "raw_prompt" not in sample:
        raise DataError("verl's dataset gives no raw_prompt", where=str(context.inputs.train))
    return count
