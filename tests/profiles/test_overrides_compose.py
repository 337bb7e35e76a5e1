"""Every override of every profile is composed into verl's own Hydra tree: a key that verl lost fails here.

Runs in the environment made from the cpu lock: it needs the installed verl.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import verl
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf

from harness.profiles import load, names

CONFIG = Path(verl.__file__).parent / "trainer" / "config"
CASES = [(name, rehearse) for name in names() for rehearse in (False, True)]


def composed(overrides: dict[str, object]) -> DictConfig:
    """verl's tree with the overrides, each written as on the command line."""
    with initialize_config_dir(str(CONFIG), version_base=None):
        return compose("ppo_trainer", [f"{key}={json.dumps(value)}" for key, value in overrides.items()])


@pytest.mark.parametrize(("name", "rehearse"), CASES)
def test_all_overrides_arrive(name: str, rehearse: bool) -> None:
    """Hydra refuses a key that is not in the tree (no ``+``), and each value is found where it was put."""
    overrides = load(name).overrides(rehearse=rehearse)
    config = composed(overrides)
    for key, value in overrides.items():
        found = OmegaConf.select(config, key.lstrip("+"), throw_on_missing=True)
        plain = OmegaConf.to_container(found) if OmegaConf.is_config(found) else found
        assert plain == value, key


@pytest.mark.parametrize("name", names())
def test_plus_only_where_verl_lacks_the_key(name: str) -> None:
    """A ``+`` on a key that exists would hide that verl has taken it over, with a default of its own."""
    tree = OmegaConf.to_container(composed({}), resolve=False)
    for key in load(name).overrides(rehearse=True):
        assert in_tree(tree, key.lstrip("+").split(".")) != key.startswith("+"), key


def in_tree(node: object, path: list[str]) -> bool:
    """Whether verl writes the key down, be it as null or as a value that must be given."""
    if not path:
        return True
    return isinstance(node, dict) and path[0] in node and in_tree(node[path[0]], path[1:])


@pytest.mark.parametrize(("name", "rehearse"), CASES)
def test_the_contract_is_what_verl_reads(name: str, rehearse: bool) -> None:
    """verl's own config classes accept the result, and the dtype that its engine reads is the contract's."""
    from verl.utils.config import omega_conf_to_dataclass

    profile = load(name)
    sizes = dict.fromkeys(SIZES, 1)
    config = composed(sizes | profile.overrides(rehearse=rehearse))
    engines = [
        omega_conf_to_dataclass(config.actor_rollout_ref.actor.fsdp_config),
        omega_conf_to_dataclass(config.actor_rollout_ref.ref.fsdp_config),
        omega_conf_to_dataclass(config.critic.fsdp),
    ]
    wanted = {"float32": "fp32", "bfloat16": "bf16"}["float32" if rehearse else profile.numerics.dtype]
    assert [engine.mixed_precision["param_dtype"] for engine in engines] == [wanted] * 3
    assert omega_conf_to_dataclass(config.actor_rollout_ref.actor).strategy == "fsdp2"


SIZES = (
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu",
    "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu",
    "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu",
    "critic.ppo_micro_batch_size_per_gpu",
)
