"""Claims about data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.data import tiny_task, tiny_tokenizer

CONFIG = {
    "prompt_key": "prompt",
    "max_prompt_length": 64,
    "filter_overlong_prompts": False,
    "return_raw_chat": True,
}


def dataset(path: Path, **more: Any) -> Any:
    from omegaconf import OmegaConf
    from verl.utils.dataset.rl_dataset import RLHFDataset

    config = OmegaConf.create({**CONFIG, **more})
    return RLHFDataset(data_files=str(path), tokenizer=tiny_tokenizer.make(), config=config)


def parquet(path: Path, rows: list[dict[str, Any]]) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def test_a_string_prompt_loses_the_question() -> None:
    """The template finds no message in it, as Qwen's does not: no error, and no question either."""
    tokenizer = tiny_tokenizer.make()
    qwen = (
        "{% for message in messages %}{{ '<|im_start|>' + (message.role or 'system') + '\n' "
        "+ (message.content or '') + '<|im_end|>\n' }}{% endfor %}"
    )
    question = "What is two and two?"
    good = tokenizer.apply_chat_template(
        [{"role": "user", "content": question}], chat_template=qwen, tokenize=False
    )
    bad = tokenizer.apply_chat_template(question, chat_template=qwen, tokenize=False)
    assert question in good
    assert question not in bad


def test_rewards_come_from_the_ground_truth_and_not_from_a_column(tmp_path: Path) -> None:
    rows = [dict(row) for row in tiny_task.make(4, seed=1, split="train")]
    assert not {"reward", "response"} & set(rows[0])
    sample = dataset(parquet(tmp_path / "a.parquet", rows))[0]
    assert {"data_source", "reward_model"} <= set(sample)
    odd = [{**row, "reward": 7, "response": "x"} for row in rows]
    with_columns = dataset(parquet(tmp_path / "b.parquet", odd))[0]
    assert with_columns["reward_model"] == sample["reward_model"]


def test_json_lines_are_read(tmp_path: Path) -> None:
    rows = [dict(row) for row in tiny_task.make(4, seed=1, split="train")]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert len(dataset(path)) == 4


def test_an_unconverted_export_has_no_prompt(tmp_path: Path) -> None:
    path = parquet(tmp_path / "raw.parquet", [{"question": "1+1?", "answer": "#### 2"}])
    with pytest.raises(KeyError, match="prompt"):
        dataset(path)[0]


def test_verls_gsm8k_score_judges_the_response() -> None:
    from verl.utils.reward_score import gsm8k

    gold = [f"steps #### {number}" for number in range(3)]
    assert all("####" in text for text in gold)
    assert gsm8k.compute_score("it is #### 2", "2") == 1.0
    assert gsm8k.compute_score("it is #### 3", "2") == 0.0
