"""Claims about what is in verl's sources, read from the installed ones."""

from __future__ import annotations

import inspect
import re
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement


def test_files_that_guides_name_do_not_exist(verl: Path) -> None:
    named = (
        "trainer/ppo/actor_rollout.py",
        "data_provider/batch_sampler.py",
        "utils/dtype.py",
        "trainer/ppo/ppo_trainer.py",
        "utils/logger.py",
    )
    assert [name for name in named if (verl / name).exists()] == []
    assert (verl / "trainer/ppo/ray_trainer.py").is_file()
    assert (verl / "utils/logger").is_dir()


@pytest.mark.parametrize("word", ["VLLM_DTYPE", "loss/actor", "loss/critic"])
def test_words_that_nothing_reads(word: str, sources: dict[str, str]) -> None:
    assert [name for name, text in sources.items() if word in text] == []
    assert [name for name, text in sources.items() if "actor/pg_loss" in text] != []


def test_a_global_replacement_misses_words_and_hits_comparisons(sources: dict[str, str]) -> None:
    replaced = {name: text.replace("torch.bfloat16", "torch.float32") for name, text in sources.items()}
    assert re.search(r"^dtype: bfloat16$", replaced["trainer/config/rollout/rollout.yaml"], re.MULTILINE)
    comparison = re.compile(r"(?:==|!=| is| in) \(?torch\.bfloat16")
    hit = [name for name, text in sources.items() if comparison.search(text)]
    assert hit
    assert not any(comparison.search(replaced[name]) for name in hit)


def test_the_default_of_mixed_precision_is_bf16(sources: dict[str, str]) -> None:
    engine = sources["workers/engine/fsdp/transformer_impl.py"]
    assert 'mixed_precision_config.get("param_dtype", "bf16")' in engine
    assert "self._autocast_dtype = param_dtype" in engine


def test_the_base_requirements_are_not_enough() -> None:
    all_of_it = [Requirement(text) for text in requires("verl") or ()]
    base = {one.name.lower() for one in all_of_it if one.marker is None}
    core = {
        one.name.lower() for one in all_of_it if one.marker and one.marker.evaluate({"extra": "verl-core"})
    }
    missing = {"transferqueue", "cachetools", "fastapi", "msgspec", "pyzmq", "uvicorn"}
    assert missing <= core
    assert not missing & base


def test_the_critics_loader_hard_codes_flash_attention() -> None:
    from verl.utils import model

    text = inspect.getsource(inspect.unwrap(model.load_valuehead_model))
    assert text.count('attn_implementation="flash_attention_2"') == 2


def test_hydra_reads_its_variable() -> None:
    from hydra._internal import utils

    assert "HYDRA_FULL_ERROR" in inspect.getsource(utils)


def test_verl_has_registries_for_a_rollout_and_a_platform(sources: dict[str, str]) -> None:
    from verl.plugin.platform import PlatformRegistry
    from verl.workers.rollout.replica import RolloutReplicaRegistry

    assert callable(RolloutReplicaRegistry.register)
    assert callable(PlatformRegistry.register)
    assert "VERL_USE_EXTERNAL_MODULES" in sources["__init__.py"]
