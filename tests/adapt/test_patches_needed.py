"""Without a patch, the locked verl fails on a CPU: each patch is there for something.

The same code runs twice, with all patches and without one. When the second passes, the patch is not needed
any more, and the test says which.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch comes with the lock")
if importlib.util.find_spec("verl") is None:
    pytest.skip("verl comes with the lock", allow_module_level=True)

from harness.adapt import names
from harness.adapt.settings import Settings

ROOT = Path(__file__).parents[2]

# Each part of the trainer that a patch is about, built by verl's own classes; what came of it, as JSON.
PROBE = """
import json, os, sys, traceback
from dataclasses import replace
from pathlib import Path
import torch, verl
from harness.data import tiny_model
from harness.ladder.inputs import prepare
from harness.ladder.options import ClimbOptions
from harness.ladder.overrides import words
from harness.ladder.workers import Workers
from harness.profiles import load

class Asked:
    options, profile = ClimbOptions(), load("cpu")
    inputs = prepare(options, Path(sys.argv[1]))
    words = staticmethod(lambda rung: words(load("cpu"), rung, ()))

def digest(worker):
    state = worker.engine.module.state_dict().items()
    return {name: tensor.double().sum().item().hex() for name, tensor in state if "score" in name}

def tried(work):
    try:
        return {"ok": work()}
    except Exception as error:
        causes = []
        while error is not None:
            causes.append(f"{type(error).__name__}: {error}")
            error = error.__cause__ or error.__context__
        return {"failed": causes}

def process_group():
    from verl.utils import distributed
    distributed.initialize_global_process_group_ray()
    return torch.distributed.get_backend()

def critic(seed):
    torch.manual_seed(seed)
    return digest(Workers(Asked).critic)

def reference():
    workers = Workers(Asked)
    actor = workers.actor_config
    actor.engine.forward_only = True
    worker = workers._worker("language_model", actor, actor.engine, workers.model_config)
    return type(worker.engine.module).__name__

Workers(Asked)  # sets the variables of a world of one
out = {"process_group": tried(process_group)}
if "ok" not in out["process_group"]:
    torch.distributed.init_process_group("gloo")
for name, work in {"one": lambda: critic(1), "two": lambda: critic(2), "reference": reference}.items():
    out[name] = tried(work)
print("\\n" + json.dumps(out))
"""


@pytest.fixture(scope="module")
def probe(tmp_path_factory: pytest.TempPathFactory) -> Any:
    @cache
    def run(*without: str) -> dict[str, Any]:
        settings = Settings(without_patches=frozenset(without))
        environment = {
            **os.environ,
            **settings.environment(),
            "PYTHONPATH": str(ROOT),
            "OMP_NUM_THREADS": "1",
        }
        command = [sys.executable, "-c", PROBE, str(tmp_path_factory.mktemp("inputs"))]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return answer

    return run


def test_with_all_patches_everything_is_built(probe: Any) -> None:
    """The other side of each test below."""
    found = probe()
    assert not [part for part, result in found.items() if "ok" not in result], found
    assert found["one"] == found["two"]
    assert found["one"]["ok"], "no value head was found, so nothing was compared"


# One process without all but the seed: each fault is met on its own, because the probe goes on after it.
OTHERS = (names.PROCESS_GROUP_BACKEND, names.OFFLOAD_WITHOUT_PINNING)
NEEDED = [
    pytest.param(
        names.PROCESS_GROUP_BACKEND, "process_group", "Duplicate device", id=names.PROCESS_GROUP_BACKEND
    ),
    pytest.param(names.OFFLOAD_WITHOUT_PINNING, "reference", "accelerator", id=names.OFFLOAD_WITHOUT_PINNING),
]


@pytest.mark.parametrize(("name", "part", "said"), NEEDED)
def test_verl_fails_without_it(probe: Any, name: str, part: str, said: str) -> None:
    found = probe(*OTHERS, names.ENGINE_SEED)[part]
    assert "failed" in found, f"patch {name} is not needed: verl's {part} was built without it"
    assert any(said in cause for cause in found["failed"]), f"patch {name}: {found}"


def test_the_critic_fails_without_its_attention(probe: Any) -> None:
    found = probe(names.VALUE_HEAD_ATTENTION)["one"]
    assert "failed" in found, (
        f"patch {names.VALUE_HEAD_ATTENTION} is not needed: the critic was built without it"
    )
    assert any("flash" in cause.lower() for cause in found["failed"]), (
        f"patch {names.VALUE_HEAD_ATTENTION}: {found}"
    )
    assert "ok" in probe(names.VALUE_HEAD_ATTENTION)["reference"], "something else failed with it"


def test_two_critics_start_differently_without_the_seed(probe: Any) -> None:
    found = probe(*OTHERS, names.ENGINE_SEED)
    assert found["one"]["ok"] != found["two"]["ok"], (
        f"patch {names.ENGINE_SEED} is not needed: two processes' critics start from the same value head"
    )
