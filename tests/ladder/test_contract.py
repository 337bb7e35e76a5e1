"""The contract in a climb: when it holds, what breaks it, and what the record then says."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.errors import ContractError, OverrideError, RungFailedError
from harness.ladder import command, contract
from harness.ladder.place import HERE, Place
from harness.profiles import load

WITH_VERL = pytest.mark.skipif(importlib.util.find_spec("verl") is None, reason="verl comes with the lock")
FAULTS = Path(__file__).parents[1] / "faults"
COMPUTE = "actor_rollout_ref.actor.fsdp_config.mixed_precision.param_dtype"
REHEARSED = Place(rehearsal=True)
ON_CUDA = Place(device="cuda", gpu="a card")
MODES = [
    ("cpu", HERE, {}, None),
    ("cpu", REHEARSED, {}, "enforce"),
    ("p40", REHEARSED, {}, "enforce"),
    ("p40", REHEARSED, {"ledger": True}, "record"),
    ("p40", ON_CUDA, {}, "enforce"),
    ("a100", ON_CUDA, {}, None),
    ("a100", ON_CUDA, {"enforce": True}, "enforce"),
    ("cpu", HERE, {"enforce": True}, "enforce"),
    ("cpu", HERE, {"ledger": True}, "record"),
]


@pytest.mark.parametrize(("profile", "place", "asked", "expected"), MODES)
def test_when_the_contract_is_held(
    profile: str, place: Place, asked: dict[str, bool], expected: str | None
) -> None:
    """A plain CPU run keeps its speed; a compiled one its compiler."""
    words = {"enforce": False, "ledger": False} | asked
    assert contract.mode(load(profile), place, **words) == expected


def test_both_flags_together_are_refused() -> None:
    with pytest.raises(OverrideError, match="--enforce and --ledger"):
        command.parse(
            trainer="v1",
            without_patches=[],
            overrides=[],
            verl_source=None,
            enforce=True,
            ledger=True,
            profile="cpu",
            first="env",
            last="ppo",
            rollout="hf",
            algorithm="ppo",
            checkpoint="none",
        )


def event(**changed: Any) -> dict[str, Any]:
    return {
        "kind": "violation",
        "mode": "enforce",
        "what": "aten::mm in bfloat16",
        "where": "verl/a.py:1",
        "reason": "No bf16 units.",
        "profile": "p40-sm61",
    } | changed


def test_the_first_violation_of_any_process_ends_the_run() -> None:
    found = contract.broken([{"kind": "activated"}, event(), event(where="verl/b.py:2")])
    assert isinstance(found, ContractError)
    assert (found.exit_code, found.failure_class) == (39, "backend")
    (problem,) = found.problems
    assert (problem.where, problem.why) == ("verl/a.py:1", "No bf16 units.")


def test_a_recorded_violation_ends_nothing() -> None:
    assert contract.broken([event(mode="record")]) is None


def test_processes_that_were_not_counted_fail_the_rung() -> None:
    contract.prove_counted([])
    with pytest.raises(RungFailedError, match=r"1 processes left no ledger: ray::WorkerDict \(pid 5\)"):
        contract.prove_counted(["ray::WorkerDict (pid 5)"])


# --- climbs ------------------------------------------------------------------------------------------------

Climb = Callable[..., Any]


@WITH_VERL
def test_a_clean_climb_says_how_much_it_looked_at(warm_climb: Climb) -> None:
    done = warm_climb("--to", "reward", "--rehearse")
    assert done.exit_code == 0, done.stdout
    run = done.run
    assert run.rehearsal
    assert (run.contract["mode"], run.contract["forbidden"], run.contract["violations"]) == ("enforce", 0, 0)
    assert run.contract["operations"] > 10_000
    assert not {"bfloat16", "float16"} & set(run.contract["by_dtype"])
    assert f"{run.contract['operations']:,} operations in 1 processes, 0 of them in bfloat16" in done.stderr
    precision = json.loads((done.folder / "precision.json").read_text())
    assert precision["operations"] == run.contract["operations"]
    assert set(precision["attention"]) == {"sdpa"}
    assert precision["violations"] == []
    assert "REHEARSAL on the CPU under cpu's contract" in done.stderr


ENGINE = "verl/workers/engine/fsdp/transformer_impl.py:"
REWARDS = FAULTS / "half_rewards.py"
ROLLOUT_IN_BF16 = "actor_rollout_ref.rollout.dtype=bfloat16"
PLANTED = [
    pytest.param("forward", [f"~{COMPUTE}"], ENGINE, "bfloat16", id="mixed-precision override taken back"),
    pytest.param("forward", [f"+{COMPUTE}=fp16"], ENGINE, "float16", id="fp16"),
    pytest.param("rollout", [ROLLOUT_IN_BF16], "harness/adapt/rollout/", "bfloat16", id="rollout"),
    pytest.param("reward", ["half"], f"{REWARDS}:", "bfloat16", id="reward"),
    pytest.param("reward", ["swallowed"], f"{REWARDS}:", "bfloat16", id="error swallowed"),
    pytest.param("reward", ["flash"], f"{REWARDS}:", "capability 8.0", id="flash-attn"),
]


@pytest.mark.parametrize(("rung", "words", "where", "said"), PLANTED)
@WITH_VERL
def test_a_planted_violation_ends_the_climb_with_its_line(
    warm_climb: Climb, tmp_path: Path, rung: str, words: list[str], where: str, said: str
) -> None:
    words = ["--reward", f"{REWARDS}:{words[0]}"] if rung == "reward" else words
    done = warm_climb("--from", "forward", "--to", "reward", "--rehearse", *words, PLANTED=str(tmp_path))
    assert done.exit_code == 39, done.stdout
    assert done.failed_rung == rung
    (problem,) = done.document["error"]["problems"]
    assert where in problem["where"]
    assert said in f"{problem['what']} {problem['why']}"
    assert done.run.failure.failure_class == "backend"
    precision = json.loads((done.folder / "precision.json").read_text())
    assert precision["violations"][0]["stack"]


@WITH_VERL
def test_the_ledger_alone_goes_on(warm_climb: Climb) -> None:
    words = ["--reward", f"{REWARDS}:half"]
    done = warm_climb("--from", "reward", "--to", "reward", "--ledger", *words)
    assert done.exit_code == 0, done.stdout
    assert (done.run.contract["mode"], done.run.contract["violations"]) == ("record", 1)
    assert done.run.contract["forbidden"] > 0
    assert done.run.contract["by_dtype"]["bfloat16"] > 0


@WITH_VERL
def test_a_model_that_is_stored_in_bf16_can_be_used(warm_climb: Climb, tmp_path: Path) -> None:
    """Most models are. They are converted when they are loaded, and that is no violation."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from harness.data import tiny_model

    made = tiny_model.write(tmp_path / "fp32", 1)
    AutoModelForCausalLM.from_pretrained(made, dtype=torch.bfloat16).save_pretrained(tmp_path / "bf16")
    AutoTokenizer.from_pretrained(made).save_pretrained(tmp_path / "bf16")
    done = warm_climb("--from", "forward", "--to", "rollout", "--rehearse", "--model", tmp_path / "bf16")
    assert done.exit_code == 0, done.stdout
    assert done.run.contract["forbidden"] == 0
    assert done.run.contract["read_from_forbidden"] > 0
