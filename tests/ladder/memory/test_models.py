"""The shipped shapes are those models: each has exactly the published number of parameters."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from harness.errors import OverrideError
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
    [
        ("{", "cannot be read"),
        ("[]", "not a model's"),
        ('{"hidden_size": 1}', "no key model_type"),
        ('{"model_type": []}', "no key model_type"),
    ],
)
def test_a_file_that_is_no_configuration(text: str, told: str, tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(text)
    with pytest.raises(OverrideError, match=told) as caught:
        models.values(str(file))
    assert told_in_full(caught.value)


def test_an_unknown_model_and_an_unknown_type() -> None:
    with pytest.raises(OverrideError, match=r"did you mean Qwen2\.5-0\.5B"):
        models.values("Qwen2.5-0.5")
    with pytest.raises(OverrideError, match="type nonsense") as caught:
        models.configuration({"model_type": "nonsense"}, attention="sdpa")
    assert told_in_full(caught.value)
    with pytest.raises(OverrideError, match=r"did you mean llama\?"):
        models.configuration({"model_type": "lama"}, attention="sdpa")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"num_hidden_layers": "x"}, "expected int, got str"),
        ({"num_attention_heads": 9}, "9 attention heads cannot share 4 heads"),
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0"),
        ({"vocab_size": -1}, "vocab_size is -1"),
        ({"rope_scaling": "x"}, "of these values"),
    ],
)
def test_a_value_that_no_model_can_have(change: dict[str, object], told: str) -> None:
    good = {"model_type": "llama", "hidden_size": 72, "num_attention_heads": 8, "num_key_value_heads": 4}
    models.check(models.configuration(good, attention="sdpa"), where="c.json")
    with pytest.raises(OverrideError) as caught:
        models.check(
            models.configuration({**good, **change}, attention="sdpa", where="c.json"), where="c.json"
        )
    assert told in str(caught.value)
    assert told_in_full(caught.value)


def told_in_full(error: OverrideError) -> bool:
    """What, where, why and what to do, and no list of hundreds of names."""
    whole = all(one.where and one.why and one.todo for one in error.problems)
    return whole and error.exit_code == 21 and len(str(error)) < 600
