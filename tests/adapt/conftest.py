"""The tiny model behind the rollout's generator, made once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch comes with the lock")

from harness.adapt.rollout.generator import Generator, Request
from harness.adapt.rollout.sampling import Sampling
from harness.data import tiny_model

EOS, PAD, ROWS = 258, 256, 8


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model.write(tmp_path_factory.mktemp("tiny") / "model", 7)


@pytest.fixture
def generator(folder: Path) -> Generator:
    """A fresh one each time: a test may change its weights."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="sdpa")
    return Generator(model, device="cpu", rows=ROWS, eos_ids={EOS}, pad_id=PAD)


@pytest.fixture
def ask() -> Callable[..., Request]:
    """Make a request of ``length`` prompt tokens; what is not said follows from ``number``."""

    def make(number: int = 0, *, length: int = 5, **options: Any) -> Request:
        ids = tuple((31 * number + 7 * place) % 250 for place in range(length))
        return Request(prompt_ids=ids, sampling=Sampling(**{"seed": number, "max_tokens": 12, **options}))

    return make
