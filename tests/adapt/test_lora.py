"""LoRA adapters in the rollout's plain model, against peft's own model with the same adapters."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

if importlib.util.find_spec("peft") is None:
    pytest.skip("peft comes with the lock", allow_module_level=True)

import torch
import transformers
from peft import LoraConfig, get_peft_model
from peft.utils.save_and_load import get_peft_model_state_dict

from harness.adapt.rollout import lora
from harness.adapt.rollout.generator import Generator
from harness.adapt.rollout.mock import MockGenerator
from harness.data import tiny_model

RANK, ALPHA = 4, 12


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model.write(tmp_path_factory.mktemp("lora") / "tiny", 1)


def plain(folder: Path) -> Any:
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)


@pytest.fixture
def adapted(folder: Path) -> Any:
    config = LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules="all-linear", task_type="CAUSAL_LM")
    return get_peft_model(plain(folder), config).eval()


@pytest.fixture
def generator(folder: Path) -> Generator:
    return Generator(plain(folder), device="cpu", rows=2, eos_ids={2}, pad_id=0)


def drawn(model: Any, seed: int) -> dict[str, torch.Tensor]:
    """Give the adapters new values, as an optimiser's step does; what verl would send."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                parameter.normal_(std=0.1)
    return {name: tensor.detach().clone() for name, tensor in get_peft_model_state_dict(model).items()}


def peft_config(model: Any) -> dict[str, Any]:
    return dict(model.peft_config["default"].to_dict())


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        return torch.as_tensor(model(torch.arange(5, 25).reshape(2, 10)).logits)


def test_two_updates_each_give_what_peft_computes(adapted: Any, generator: Generator) -> None:
    """The second is not added to the first."""
    scale = lora.scale_of(peft_config(adapted))
    bare = logits(generator.model)
    for seed in (1, 2):
        sent = drawn(adapted, seed)
        names = generator.load_adapters(sent, scale)
        wanted = logits(adapted)
        assert torch.allclose(logits(generator.model), wanted, atol=1e-5)
        assert not torch.allclose(wanted, bare, atol=1e-3)
        assert len(names) == len(sent) // 2


def test_another_scale_is_another_model(adapted: Any, generator: Generator) -> None:
    generator.load_adapters(drawn(adapted, 1), lora.scale_of(peft_config(adapted)) * 1.01)
    assert not torch.allclose(logits(generator.model), logits(adapted), atol=1e-5)


def test_base_weights_come_under_the_names_of_a_wrapped_model(adapted: Any, generator: Generator) -> None:
    """verl's first update of a rollout without weights; adapters of before are gone with it."""
    sent = drawn(adapted, 1)
    scale = lora.scale_of(peft_config(adapted))
    generator.load_adapters(sent, scale)
    wrapped = {
        name.removeprefix("base_model.model."): 0.5 * tensor
        for name, tensor in adapted.state_dict().items()
        if "lora_" not in name
    }
    assert any(".base_layer." in name for name in wrapped)
    base = dict(lora.unwrapped(wrapped.items()))
    assert generator.load_weights(base) >= generator.parameter_names()
    generator.load_adapters(sent, scale)
    adapted.load_state_dict(
        {f"base_model.model.{name}": tensor for name, tensor in wrapped.items()}, strict=False
    )
    assert torch.allclose(logits(generator.model), logits(adapted), atol=1e-5)


@pytest.mark.parametrize("gone", [".lora_A.weight", ".lora_B.weight"])
def test_half_an_adapter_is_refused(adapted: Any, generator: Generator, gone: str) -> None:
    sent = drawn(adapted, 1)
    name = next(name for name in sent if name.endswith(gone))
    del sent[name]
    module = name.removesuffix(gone)
    mock = MockGenerator(
        vocabulary=8,
        shapes={key: tensor.shape for key, tensor in generator.model.state_dict().items()},
        rows=2,
        eos_ids={2},
    )
    for backend in (generator, mock):
        with pytest.raises(KeyError, match=module):
            backend.load_adapters(sent, 1.0)


def test_an_adapter_of_another_module_is_refused(generator: Generator) -> None:
    module = "base_model.model.model.layers.9.mlp.up_proj"
    sent = {f"{module}.lora_A.weight": torch.zeros(4, 64), f"{module}.lora_B.weight": torch.zeros(64, 4)}
    with pytest.raises(KeyError, match=r"layers\.9"):
        generator.load_adapters(sent, 1.0)


@pytest.mark.parametrize(
    "kind", [{"use_dora": True}, {"use_rslora": True}, {"bias": "all"}, {"rank_pattern": {"q_proj": 2}}]
)
def test_other_kinds_are_named(adapted: Any, kind: dict[str, Any]) -> None:
    assert lora.scale_of(peft_config(adapted)) == ALPHA / RANK
    with pytest.raises(NotImplementedError, match="plain LoRA adapters"):
        lora.scale_of(peft_config(adapted) | kind)
