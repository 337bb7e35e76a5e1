"""Model folders with something missing or broken, and chat templates that lose the question."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.data import chat_check, model_check, tiny_model, tiny_tokenizer
from harness.errors import DataError, ModelError

pytest.importorskip("transformers", reason="transformers comes with the lock")

LFS_POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:0\n"
QUESTION = [{"role": "user", "content": " 1 + 2 = \n"}]


@pytest.fixture(scope="module")
def _made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model.write(tmp_path_factory.mktemp("made") / "model", 1)


@pytest.fixture
def folder(_made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(_made, tmp_path / "model"))


def _cut(path: Path, size: int) -> None:
    path.write_bytes(path.read_bytes()[:size])


def _sharded(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "model-00001-of-00002.safetensors")
    weights = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weights}))


BREAKAGES: list[tuple[Callable[[Path], Any], str]] = [
    (lambda f: (f / "config.json").unlink(), "no config.json"),
    (lambda f: (f / "config.json").write_text("{"), "config.json is not readable JSON"),
    (lambda f: (f / "config.json").write_text("[]"), "config.json is not a JSON object"),
    (lambda f: (f / "config.json").write_text("{}"), "names no model_type"),
    (lambda f: (f / "tokenizer.json").unlink(), "no tokenizer files"),
    (lambda f: _cut(f / "tokenizer.json", 500), "tokenizer.json is not readable JSON"),
    (lambda f: (f / "tokenizer_config.json").write_text("?"), "tokenizer_config.json is not readable"),
    (lambda f: (f / "model.safetensors").unlink(), "no weights"),
    (lambda f: _cut(f / "model.safetensors", 100_000), "the weights are cut: 100000 bytes of"),
    (lambda f: _cut(f / "model.safetensors", 40), "cut in its header"),
    (lambda f: _cut(f / "model.safetensors", 0), "cut in its header"),
    (lambda f: (f / "model.safetensors").write_text(LFS_POINTER), "git lfs pull"),
    (_sharded, "model-00002-of-00002.safetensors: a part of the weights is missing"),
]


@pytest.mark.parametrize(("breakage", "expected"), BREAKAGES)
def test_a_broken_folder(folder: Path, breakage: Callable[[Path], Any], expected: str) -> None:
    breakage(folder)
    with pytest.raises(ModelError) as caught:
        model_check.check(folder)
    assert expected in str(caught.value)
    assert str(folder) in str(caught.value)
    assert caught.value.exit_code == 15


def test_all_problems_at_once(tmp_path: Path) -> None:
    with pytest.raises(ModelError) as caught:
        model_check.check(tmp_path)
    assert [problem.what for problem in caught.value.problems] == [
        "no config.json",
        "no tokenizer files",
        "no weights",
    ]


def test_no_folder(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="nothing is downloaded during a run"):
        model_check.check(Path("Qwen/Qwen2.5-0.5B-Instruct"))
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    with pytest.raises(ModelError, match="convert it to a model folder first"):
        model_check.check(tmp_path / "m.gguf")


def test_old_weights_count(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    assert model_check.check(folder).weight_files == ("pytorch_model.bin",)


def test_a_tokenizer_that_parses_and_does_not_load(folder: Path) -> None:
    (folder / "tokenizer.json").write_text('{"model": {"type": "Nonsense"}}')
    model_check.check(folder)
    with pytest.raises(ModelError, match="the tokenizer cannot be loaded"):
        model_check.load_tokenizer(folder)


def render(template: str | None, messages: list[dict[str, Any]], length: int = 64) -> chat_check.Rendered:
    tokenizer = tiny_tokenizer.make()
    tokenizer.chat_template = template
    return chat_check.check(
        messages, tokenizer=tokenizer, max_prompt_length=length, where="train.parquet:row 3:prompt"
    )


def test_a_question_survives() -> None:
    found = render(tiny_tokenizer.CHAT_TEMPLATE, QUESTION)
    assert "1 + 2 =" in found.text
    assert found.tokens == len(found.text) - 3 * len("<|im_start|>") + 3 + 2


def test_a_template_may_strip() -> None:
    assert render("{% for m in messages %}{{ m['content'] | trim }}{% endfor %}", QUESTION).text == "1 + 2 ="


@pytest.mark.parametrize(
    ("template", "messages", "error", "expected"),
    [
        (None, QUESTION, ModelError, "the tokenizer has no chat template"),
        (
            "{% for m in messages %}<{{ m['value'] }}>{% endfor %}",
            QUESTION,
            DataError,
            "the question is lost",
        ),
        ("{{ raise_exception('roles must alternate') }}", QUESTION, DataError, "roles must alternate"),
        ("{% for %}", QUESTION, DataError, "the chat template refuses the prompt"),
        (tiny_tokenizer.CHAT_TEMPLATE, [{"role": "user", "content": " "}], DataError, "the question is lost"),
        (
            tiny_tokenizer.CHAT_TEMPLATE,
            [{"role": "system", "content": "x"}],
            DataError,
            "no message of role user",
        ),
        (
            tiny_tokenizer.CHAT_TEMPLATE,
            [{"role": "user", "content": "x" * 60}],
            DataError,
            "max_prompt_length=64",
        ),
    ],
)
def test_a_template_against_the_data(
    template: str | None, messages: list[dict[str, Any]], error: type[Exception], expected: str
) -> None:
    with pytest.raises(error, match=expected):
        render(template, messages)


def test_qwens_template_loses_a_string_prompt() -> None:
    """What verl does with the flat layout: characters are taken for messages, and vanish."""
    template = "{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% endif %}{% endfor %}"
    tokenizer = tiny_tokenizer.make()
    tokenizer.chat_template = template
    assert tokenizer.apply_chat_template(QUESTION, tokenize=False).startswith(" 1 + 2 =")
    assert "1 + 2" not in tokenizer.apply_chat_template([{"text": "1 + 2 ="}], tokenize=False)
