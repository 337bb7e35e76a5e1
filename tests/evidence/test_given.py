"""What a run was given is kept, without secrets, and a file that was changed is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.evidence import given


def test_variables_that_steer_verl_are_kept_and_secrets_are_not() -> None:
    environ = {
        "VERL_USE_EXTERNAL_MODULES": "mine",
        "RAY_DEDUP_LOGS": "0",
        "HF_HUB_TOKEN": "x",
        "RAY_AUTH_TOKEN": "x",
        "VERL_API_KEY": "x",
        "VERL_FILE_LOGGER_PATH": "/runs/x",
        "TOKENIZERS_PARALLELISM": "false",
        "HOME": "/root",
        "WANDB_API_KEY": "x",
    }
    assert given.variables(environ) == {
        "RAY_DEDUP_LOGS": "0",
        "TOKENIZERS_PARALLELISM": "false",
        "VERL_USE_EXTERNAL_MODULES": "mine",
    }


def test_a_file_that_was_changed_and_one_that_is_gone_are_told(tmp_path: Path) -> None:
    reward, model = tmp_path / "judge.py", tmp_path / "model"
    reward.write_text("def score(): return 1\n")
    (model / "sub").mkdir(parents=True)
    (model / "sub" / "config.json").write_text("{}")
    kept = given.of([reward, model], {})
    assert set(kept.files) == {str(reward), str(model)}
    assert list(given.changed(kept)) == []
    reward.write_text("def score(): return 2\n")
    (model / "sub" / "config.json").rename(model / "config.json")
    assert [problem.where for problem in given.changed(kept)] == [str(reward), str(model)]
    reward.unlink()
    assert next(iter(given.changed(kept))).what == f"{reward.name} is not there any more"


def test_large_files_are_known_by_size_head_and_tail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(given, "_WHOLE", 1000)
    monkeypatch.setattr(given, "_PIECE", 100)
    weights = tmp_path / "m" / "w.bin"
    weights.parent.mkdir()
    weights.write_bytes(bytes(2000))
    before = given.digest(weights.parent)
    assert before.startswith("sampled:")
    for place, seen in ((0, True), (1000, False), (1999, True)):
        data = bytearray(2000)
        data[place] = 1
        weights.write_bytes(data)
        assert (given.digest(weights.parent) != before) is seen
    weights.write_bytes(bytes(2001))
    assert given.digest(weights.parent) != before


def test_an_override_names_a_file_only_where_there_is_one(tmp_path: Path) -> None:
    rows = tmp_path / "rows.parquet"
    rows.touch()
    words = [f"data.train_files=[{rows},/not/there]", "a.b=x/y", "+c='d'", "~e"]
    assert list(given.named(words)) == [(words[0], str(rows))]
