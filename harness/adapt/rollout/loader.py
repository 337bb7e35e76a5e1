"""Builds a rollout backend from verl's rollout and model configuration."""

from __future__ import annotations

from typing import Any

import torch

from harness.adapt.rollout.generator import Generator
from harness.adapt.rollout.mock import MockGenerator
from harness.adapt.rollout.rows import MOST_ROWS
from harness.adapt.settings import from_environment


def _rows(config: Any) -> int:
    return min(int(config.max_num_seqs), MOST_ROWS)


def _eos_ids(model_config: Any) -> set[int]:
    """All tokens that end a response: the tokenizer's, and those of the generation configuration."""
    ids = {model_config.tokenizer.eos_token_id}
    configured = getattr(model_config.generation_config, "eos_token_id", None)
    ids |= set(configured) if isinstance(configured, list | tuple) else {configured}
    return {token for token in ids if token is not None}


def load_hf(config: Any, model_config: Any) -> Generator:
    """A transformers model. With ``load_format: dummy`` its weights come from the trainer alone."""
    from transformers import AutoModelForCausalLM
    from verl.utils.torch_dtypes import PrecisionType

    dtype = PrecisionType.to_dtype(config.dtype)
    attention = getattr(model_config.hf_config, "_attn_implementation", None) or from_environment().attention
    options = {"attn_implementation": attention, "trust_remote_code": model_config.trust_remote_code}
    if "dummy" in config.load_format:
        model = AutoModelForCausalLM.from_config(model_config.hf_config, dtype=dtype, **options)
    else:
        model = AutoModelForCausalLM.from_pretrained(
            model_config.local_path, config=model_config.hf_config, dtype=dtype, **options
        )
    return Generator(
        model,
        device=from_environment().rollout_device,
        rows=_rows(config),
        eos_ids=_eos_ids(model_config),
        pad_id=model_config.tokenizer.pad_token_id or 0,
    )


def load_mock(config: Any, model_config: Any) -> MockGenerator:
    """The dice, with the parameter shapes of the real model (built on the meta device: no memory)."""
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(model_config.hf_config, attn_implementation="sdpa")
    return MockGenerator(
        vocabulary=len(model_config.tokenizer),
        shapes={name: tensor.shape for name, tensor in model.state_dict().items()},
        rows=_rows(config),
        eos_ids=_eos_ids(model_config),
    )
