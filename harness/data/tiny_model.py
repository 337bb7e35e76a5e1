"""A tiny Qwen2, random but the same everywhere: the model of the ladder when no other is named.

Two layers of width 64: about 0.1 million parameters, a forward pass in a millisecond, and yet every
part that the trainer touches (grouped-query attention, rotary positions, RMS norms, gated MLP).
"""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

from harness.data import tiny_tokenizer
from harness.data.folders import whole

# Qwen2's own initializer_range. Uniform between plus and minus sqrt(3) times it has the same spread.
_SPREAD = 0.02
_HALF_WIDTH = _SPREAD * math.sqrt(3)


def write(folder: Path, seed: int) -> Path:
    """Write model and tokenizer, to be loaded by ``AutoModelForCausalLM`` and ``AutoTokenizer``.

    The same seed gives the same bytes. Raises :class:`DiskFullError` or :class:`RecordError`.
    """
    with whole(folder, what="write the tiny model") as place:
        tokenizer = tiny_tokenizer.make()
        model = make(seed, eos=tokenizer.eos_token_id, pad=tokenizer.pad_token_id)
        model.save_pretrained(place)
        tokenizer.save_pretrained(place)
    return folder


def make(seed: int, *, eos: int, pad: int) -> Any:
    """Return the model in float32; torch's global random state is left as it was.

    Embedding and head are not tied: verl builds tied models without meta tensors
    (``workers/engine/fsdp/transformer_impl.py:267``), and larger models are not tied, so untied is the
    path worth proving. The weights come from Python's generator and one multiplication each, not from
    torch's normal distribution, whose last bits depend on the processor's vector units: a Mac and a
    Linux machine start from the same bits.
    """
    import torch
    from transformers import AutoModelForCausalLM, Qwen2Config

    config = Qwen2Config(
        vocab_size=tiny_tokenizer.VOCABULARY,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        initializer_range=_SPREAD,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=eos,
        pad_token_id=pad,
    )
    with torch.random.fork_rng(devices=[]):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    draw = random.Random(seed)
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            if name.endswith("norm.weight"):
                parameter.fill_(1.0)
            elif name.endswith("bias"):
                parameter.zero_()
            else:
                values = [(2.0 * draw.random() - 1.0) * _HALF_WIDTH for _ in range(parameter.numel())]
                parameter.copy_(torch.tensor(values, dtype=torch.float32).view_as(parameter))
    return model.eval()
