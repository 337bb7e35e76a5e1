"""Issue 4, contracts: a P40 rehearsed on this CPU from its own lock, and everything it forbids planted there.

The first of these tests makes the p40 environment (5.8 GB).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.evidence.model import Run, load

pytestmark = pytest.mark.acceptance

ROOT = Path(__file__).parents[2]
FAULTS = ROOT / "tests" / "faults"
ENGINE = "verl/workers/engine/fsdp/transformer_impl.py:"
Record = Callable[[str, object], None]


def rehearse(runs: Path, *words: str) -> tuple[int, dict[str, Any], Run]:
    """A climb under the P40's lock and contract; exit code, the one JSON document, the record."""
    command = [sys.executable, "-P", "-m", "harness", "climb", "--profile", "p40", "--rehearse", "--json"]
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "PLANTED": str(runs.parent)}
    done = subprocess.run(
        [*command, "--runs", str(runs), *words],
        env=variables,
        cwd=runs.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, json.loads(done.stdout), load((runs / "latest").resolve())


def ledger(runs: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((runs / "latest" / "precision.json").read_text())
    return document


@pytest.mark.parametrize("fork", ["--fork", "--no-fork"])
def test_the_p40_is_rehearsed_without_one_forbidden_operation(
    tmp_path: Path, fork: str, record_property: Record
) -> None:
    """Forked or started anew, every process that ran verl was counted in all the threads that compute."""
    runs = tmp_path / "runs"
    code, document, run = rehearse(runs, fork)
    assert code == 0, document
    assert [rung.status for rung in run.rungs] == ["passed"] * 7
    assert (run.rehearsal, run.device, run.versions["torch"]) == (True, "cpu", "2.7.1")
    assert {text.partition(":")[0] for text in run.unverified} == {"CUDA kernels", "NCCL"}
    found = ledger(runs)
    for process in found["processes"]:
        assert not {"bfloat16", "float16"} & set(process["by_dtype"]), process
    assert (found["forbidden"], found["violations"], set(found["attention"])) == (0, [], {"sdpa"})
    busy = {process["role"] for process in found["processes"] if process["operations"]}
    assert {"ray::WorkerDict", "ray::HfRolloutServer", "ray::RewardLoopWorker"} <= busy
    assert found["operations"] > 100_000
    record_property("operations", found["operations"])
    record_property("processes", len(found["processes"]))
    outside = {
        f"{process['role']}: {name}"
        for process in found["processes"]
        for name in process["threads_not_counted"]
    }
    record_property("threads_not_counted", sorted(outside))
    record_property("seconds", run.seconds)


def test_without_the_patch_gloo_cannot_average(tmp_path: Path) -> None:
    code, document, _ = rehearse(
        tmp_path / "runs", "--from", "ppo", "--steps", "1", "--without-patch", "gloo-avg"
    )
    assert code == 22, document
    assert "ReduceOp.AVG" in json.dumps(document)


COMPUTE = "actor_rollout_ref.actor.fsdp_config.mixed_precision.param_dtype"
PLANTED = [
    pytest.param("ppo", [f"~{COMPUTE}"], ENGINE, "bfloat16", id="mixed-precision override removed"),
    pytest.param(
        "ppo", ["half_rewards.py:half"], "half_rewards.py:", "bfloat16", id="reward in a Ray worker"
    ),
    pytest.param("reward", ["half_rewards.py:flash"], "half_rewards.py:", "sm_80", id="flash-attn"),
    pytest.param("reward", ["triton_rewards.py:launch"], "triton_rewards.py:", "sm_70", id="Triton launch"),
    pytest.param("reward", ["triton_rewards.py:tiles"], "triton_rewards.py:", "49152", id="shared memory"),
]


@pytest.mark.parametrize(("rung", "words", "where", "said"), PLANTED)
def test_what_the_p40_forbids_is_refused(
    tmp_path: Path, rung: str, words: list[str], where: str, said: str, record_property: Record
) -> None:
    if ".py:" in words[0]:
        words = ["--reward", str(FAULTS / words[0])]
    code, document, run = rehearse(tmp_path / "runs", "--from", rung, "--to", rung, *words)
    assert code == 39, document
    (problem,) = document["error"]["problems"]
    record_property(
        "said", f"{problem['where']}: {problem['what']}; {problem['why']}".replace(f"{ROOT}/", "")
    )
    assert where in problem["where"]
    assert said in f"{problem['what']} {problem['why']}"
    assert run.failure is not None
    assert run.failure.failure_class == "backend"
    if said == "49152":
        assert "81920" in problem["why"]
