"""The command: a document, a table, a verdict that can be no, and a key that then makes it yes."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from harness.console import Output
from harness.errors import MemoryPlanError, OverrideError, UnknownProfileError
from harness.ladder.memory import command, fit
from harness.ladder.memory.phases import Machine
from harness.profiles import load

SHAPE = {
    "model_type": "llama",
    "vocab_size": 1024,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "tie_word_embeddings": False,
}
WORDS = [
    "data.max_prompt_length=16",
    "data.max_response_length=16",
    "actor_rollout_ref.rollout.max_num_seqs=8",
]


@pytest.fixture
def model(tmp_path: Path) -> str:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(SHAPE))
    return str(file)


def planned(capsys: pytest.CaptureFixture[str], model: str, *more: str) -> dict[str, object]:
    with suppress(SystemExit):
        command.run("p40", model, [*WORDS, *more], Output(as_json=True))
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def test_it_fits_or_the_key_that_it_names_makes_it_fit(
    model: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    off = [
        "actor_rollout_ref.actor.fsdp_config.optimizer_offload=false",
        "actor_rollout_ref.actor.fsdp_config.param_offload=false",
        "critic.fsdp.optimizer_offload=false",
        "critic.fsdp.param_offload=false",
    ]
    roomy = planned(capsys, model, *off)
    assert (roomy["fits"], roomy["change"], roomy["profile"]) == (True, [], "p40-sm61")
    assert roomy["device_memory"] == int(22.4 * 2**30)
    phases = roomy["phases"]
    assert isinstance(phases, list)
    assert [phase["name"] for phase in phases] == [
        "start",
        "rollout",
        "old log-probabilities",
        "reference log-probabilities",
        "values",
        "critic update",
        "actor update",
        "weights to rollout",
    ]
    most = max(phase["device"] for phase in phases)
    # A card on which it is a byte too much.
    small = Machine(device=most - 1 + fit.DEVICE_RESERVE, host=1 << 40)
    monkeypatch.setattr(command, "machine", lambda _profile: small)
    tight = planned(capsys, model, *off)
    assert tight["fits"] is False
    keys = tight["change"]
    assert isinstance(keys, list)
    assert len(keys) == 1
    helped = planned(capsys, model, *(word for word in off if word.partition("=")[0] not in keys[0]), *keys)
    assert helped["fits"] is True
    with pytest.raises(MemoryPlanError) as caught:
        command.run("p40", model, [*WORDS, *off], Output())
    assert f"change first: {keys[0]}" in str(caught.value)
    assert "actor update" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        ([], []),
        (["foo=1", "data.train_batch_size=-3"], ["foo", "data.train_batch_size"]),
        (["trainer.n_gpus_per_node=0", "trainer.nnodes=null"], ["trainer.n_gpus_per_node", "trainer.nnodes"]),
        (["data.max_prompt_length=x", "critic.optim=null"], ["data.max_prompt_length", "critic.optim"]),
        (["~critic"], ["critic"]),
        (["model_engine=megatron"], ["model_engine"]),
        (["data.max_response_length=${nope}"], ["data.max_response_length"]),
        (["a b c"], ["a b c"]),
        (
            ["actor_rollout_ref.rollout.dtype=int3", "critic.fsdp.model_dtype=int3"],
            ["actor_rollout_ref.rollout.dtype", "critic.fsdp.model_dtype"],
        ),
        (
            [
                "actor_rollout_ref.model.lora_rank=null",
                "actor_rollout_ref.rollout.gpu_memory_utilization=1.5",
            ],
            ["actor_rollout_ref.model.lora_rank", "actor_rollout_ref.rollout.gpu_memory_utilization"],
        ),
    ],
)
def test_mistakes_in_words_and_model_are_told_together_before_anything_is_traced(
    words: list[str], wrong: list[str]
) -> None:
    """The model has one too, so that both kinds are seen at once; ``check`` traces nothing."""
    # verl's tree repeats the length elsewhere, and Hydra names that place.
    derived = {"actor_rollout_ref.rollout.response_length"}
    for heads in (4, 3):
        shape = {**SHAPE, "num_key_value_heads": heads}
        places = ["c.json:num_key_value_heads"] * (heads == 3)
        planner = command.Planner(load("p40"), shape, [*WORDS, *words], model="c.json")
        if not wrong and not places:
            planner.check()
            continue
        with pytest.raises(OverrideError) as caught:
            planner.check()
        assert all(one.todo for one in caught.value.problems)
        told = [str(one.where) for one in caught.value.problems]
        assert told[: len(places)] == places
        assert sorted(wrong) == sorted(set(told[len(places) :]) - derived)


def test_a_shape_that_torch_refuses_is_the_users_to_correct(caplog: pytest.LogCaptureFixture) -> None:
    """The heads are consistent, and their width is odd: the rotary embedding cannot halve it."""
    planner = command.Planner(load("p40"), {**SHAPE, "head_dim": 5}, WORDS, model="c.json")
    planner.check()
    log = logging.getLogger("torch._subclasses.fake_tensor")
    log.addHandler(caplog.handler)  # torch's loggers have handlers of their own, and do not propagate
    with pytest.raises(OverrideError, match=r"c\.json: the model does not compute") as caught:
        planner.trace()
    assert "RuntimeError" in str(caught.value)
    log.removeHandler(caplog.handler)
    assert caplog.text == ""
    assert log.disabled is False


@pytest.mark.parametrize(
    "words", [["nosuch"], ["nosuch", "--check"], ["memory", "nosuch"], ["sizes", "nosuch"]]
)
def test_plan_takes_a_profile_as_it_always_did_or_a_command(words: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "harness", "plan", *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == UnknownProfileError.exit_code
    assert "no profile is named 'nosuch'" in done.stderr
