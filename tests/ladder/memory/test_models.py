"""The shipped shapes are those models: each has exactly the published number of parameters."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from harness.errors import MemoryPlanError
from harness.ladder.memory import models


def parameters(values: dict[str, object]) -> int:
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(models.configuration(values, attention="sdpa"))
    return sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize("name", models.shipped())
def test_a_shipped_shape_has_its_parameters_and_its_source(name: str) -> None:
    entry = models.shipped()[name]
    assert parameters(entry["config"]) == entry["parameters"]
    assert entry["source"].startswith("https://huggingface.co/")
    assert name in entry["source"]


def test_a_wrong_value_would_be_seen() -> None:
    entry = models.shipped()["Qwen2.5-0.5B"]
    assert parameters({**entry["config"], "num_key_value_heads": 14}) != entry["parameters"]


@pytest.mark.parametrize("name", ["Qwen2.5-0.5B", "qwen2.5-0.5b", "Qwen/Qwen2.5-0.5B-Instruct"])
def test_a_name_is_found_as_people_write_it(name: str) -> None:
    assert models.values(name)["hidden_size"] == 896


def test_a_folder_or_a_file_of_the_users(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"model_type": "llama", "hidden_size": 64}))
    assert (
        models.values(str(tmp_path)) == models.values(str(file)) == {"model_type": "llama", "hidden_size": 64}
    )


@pytest.mark.parametrize(
    ("text", "told"),
    [("{", "cannot be read"), ("[]", "not a model's"), ('{"hidden_size": 1}', "no key model_type")],
)
def test_a_file_that_is_no_configuration(text: str, told: str, tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(text)
    with pytest.raises(MemoryPlanError, match=told):
        models.values(str(file))


def test_an_unknown_model_and_an_unknown_type() -> None:
    with pytest.raises(MemoryPlanError, match=r"did you mean Qwen2\.5-0\.5B"):
        models.values("Qwen2.5-0.5")
    with pytest.raises(MemoryPlanError, match="type nonsense"):
        models.configuration({"model_type": "nonsense"}, attention="sdpa")
