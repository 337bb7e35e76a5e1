"""The static part of preflight: for each fault that people met, a small command, found without Ray."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

if importlib.util.find_spec("verl") is None:
    pytest.skip("verl comes with the lock", allow_module_level=True)

import pyarrow as pa
import pyarrow.parquet as pq

from harness.data import data_check, gsm8k, tiny_tokenizer
from harness.data.finding import Finding
from harness.errors import DataError
from harness.evidence.documents import Preflighted
from harness.ladder.options import ClimbOptions
from harness.ladder.preflight.command_line import TRAINER, parse
from harness.ladder.preflight.prepare import prepare
from harness.ladder.preflight.static import Inspected, inspect, standing_in
from harness.ladder.preflight.tree import as_read

ROOT = Path(__file__).parents[2]
ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
# A command without any fault, on 8 GPUs.
GOOD = (
    "data.train_files=train.parquet",
    "data.val_files=train.parquet",
    "data.train_batch_size=16",
    "algorithm.adv_estimator=grpo",
    "actor_rollout_ref.model.path=Qwen/Qwen3-8B",
    f"{ROLLOUT}.name=vllm",
    f"{ROLLOUT}.n=4",
    f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu=4",
    f"{ACTOR}.ppo_mini_batch_size=8",
    f"{ACTOR}.ppo_micro_batch_size_per_gpu=2",
    "trainer.logger=[console]",
)
REWARD = "def good(data_source, solution_str, ground_truth, extra_info=None): return 1.0\n"
REWARD += "def narrow(solution_str, ground_truth): return 1.0\n"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files that the commands name."""
    folder = tmp_path_factory.mktemp("place")
    gsm8k.write(folder / "train.parquet", gsm8k.make(32, seed=1))
    rows = pq.read_table(folder / "train.parquet").to_pylist()
    raw = [{"question": "q", "answer": "#### 1"}]
    flat = [{"prompt": "q", "response": "a", "reward": 1.0}]
    bare = [{key: value for key, value in row.items() if key != "reward_model"} for row in rows]
    local = [{**row, "data_source": "/home/me/gsm8k"} for row in rows]
    for name, made in (("raw", raw), ("flat", flat), ("bare", bare), ("local", local)):
        pq.write_table(pa.Table.from_pylist(made), folder / f"{name}.parquet")
    (folder / "reward.py").write_text(REWARD)
    for name, template in (("instruct", tiny_tokenizer.CHAT_TEMPLATE), ("base", None)):
        tokenizer = tiny_tokenizer.make()
        tokenizer.chat_template = template
        tokenizer.save_pretrained(folder / name)
        config = {"model_type": "qwen2", "max_position_embeddings": 2048, "num_attention_heads": 4}
        (folder / name / "config.json").write_text(json.dumps(config))
    (folder / "checkpoints" / "p" / "e" / "global_step_5").mkdir(parents=True)
    return folder


Judge = Callable[..., Inspected]


@pytest.fixture
def judge(place: Path, monkeypatch: pytest.MonkeyPatch) -> Judge:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")

    def run(
        *words: str, module: str = TRAINER, environ: dict[str, str] | None = None, bare: bool = False
    ) -> Inspected:
        argv = ["python3", "-m", module, *(() if bare else GOOD), *words]
        return inspect(parse(argv, environ=environ or {}, folder=place))

    return run


def ids(found: Inspected, level: str = "fault") -> set[str]:
    return {finding.id for finding in found.findings if finding.level == level}


def only(found: Inspected, kind: str) -> Finding:
    return next(finding for finding in found.findings if finding.id == kind)


def test_a_good_command_has_no_finding(judge: Judge) -> None:
    assert judge().findings == ()


# The words that are added, the fault, its key. In the comment: the report whose fault it is.
FAULTS = [
    (
        [f"{ROLLOUT}.tensor_model_parallel_size=3"],
        "rollout-parallel",
        f"{ROLLOUT}.tensor_model_parallel_size",
    ),
    (
        ["data.train_batch_size=17", f"{ACTOR}.ppo_mini_batch_size=2"],
        "batch-divisible",
        "data.train_batch_size",
    ),  # P09, L15
    (["data.train_files=raw.parquet"], "data-form", "raw.parquet"),  # P58, L11
    (
        ["data.train_files=raw.parquet", "data.prompt_key=question"],
        "data-form",
        "raw.parquet:question",
    ),  # P59, P62
    (["data.train_files=bare.parquet"], "data-form", "bare.parquet:reward_model.ground_truth"),  # P59
    (["data.train_files=local.parquet"], "data-source-unknown", "local.parquet:data_source"),  # P60
    (["data.train_files=flat.parquet"], "data-form", "flat.parquet:prompt"),  # L12
    (
        ["data.max_prompt_length=20", "actor_rollout_ref.model.path=instruct"],
        "prompts-overlong",
        "data.max_prompt_length",
    ),  # P64, P65
    (
        [
            "data.max_prompt_length=20",
            "data.filter_overlong_prompts=True",
            "actor_rollout_ref.model.path=instruct",
        ],
        "prompts-overlong",
        "data.max_prompt_length",
    ),  # L11
    (["actor_rollout_ref.model.path=base"], "model-no-template", "actor_rollout_ref.model.path"),  # P66
    (
        ["data.max_response_length=9000", f"{ROLLOUT}.enable_chunked_prefill=False"],
        "batched-tokens",
        f"{ROLLOUT}.max_num_batched_tokens",
    ),  # P67, P68
    (
        [f"{ACTOR}.ppo_micro_batch_size_per_gpu=null"],
        "micro-batch-unset",
        f"{ACTOR}.ppo_micro_batch_size_per_gpu",
    ),  # P69, L13
    (
        [f"{ACTOR}.ppo_micro_batch_size_per_gpu=null", f"{ACTOR}.ppo_micro_batch_size=4"],
        "micro-batch-small",
        f"{ACTOR}.ppo_micro_batch_size",
    ),  # P71
    (["val_generations_to_log_to_wandb=1"], "unknown-key", "val_generations_to_log_to_wandb"),  # P74
    ([f"{ROLLOUT}.name=hf"], "unknown-name", f"{ROLLOUT}.name"),  # P75
    ([f"{ROLLOUT}.mode=sync"], "rollout-mode", f"{ROLLOUT}.mode"),  # P75
    (["trainer.resume_mode=global_step_2800"], "unknown-name", "trainer.resume_mode"),  # P79
    ([f"{ACTOR}.ppo_mini_batch_size=256"], "mini-batch", f"{ACTOR}.ppo_mini_batch_size"),  # L14
    (
        ["actor_rollout_ref.fsdp_config.cpu_offload=true"],
        "unknown-key",
        "actor_rollout_ref.fsdp_config.cpu_offload",
    ),  # L16
    (
        ["+actor_rollout_ref.fsdp_config.cpu_offload=true"],
        "unread-key",
        "actor_rollout_ref.fsdp_config.cpu_offload",
    ),  # L16
    (["+trainer.val_before_train=False"], "key-exists", "trainer.val_before_train"),  # L17
    (["custom_reward_function.path=reward.py"], "unread-key", "custom_reward_function.path"),
    ([f"+{ACTOR}.no_such_field=1"], "unknown-field", f"{ACTOR}.no_such_field"),
    (["trainer.nnodes=two"], "wrong-type", "trainer.nnodes"),
    (["actor_rollout_ref.actor=0"], "wrong-type", "actor_rollout_ref.actor"),
    (["trainer.nnodes='[1'"], "wrong-type", "trainer.nnodes"),
    (["data.train_batch_size=[8"], "override-syntax", "data.train_batch_size=[8"),
    (["data.train_files=gone.parquet"], "file-missing", "data.train_files"),
    (["actor_rollout_ref.model.path=/gone"], "model-missing", "actor_rollout_ref.model.path"),
    (["reward.custom_reward_function.path=gone.py"], "file-missing", "reward.custom_reward_function.path"),
    (
        ["reward.custom_reward_function.path=reward.py", "reward.custom_reward_function.name=goood"],
        "reward-missing",
        "reward.custom_reward_function.name",
    ),
    (
        ["reward.custom_reward_function.path=reward.py", "reward.custom_reward_function.name=narrow"],
        "reward-signature",
        "reward.py:narrow",
    ),
    (["reward.reward_manager.name=batch"], "unknown-name", "reward.reward_manager.name"),
    (["data.train_batch_size=64"], "too-few-rows", "data.train_batch_size"),
    (["algorithm.adv_estimator=gropo"], "unknown-name", "algorithm.adv_estimator"),
    (["algorithm.adv_estimator=gdpo"], "estimator-in-v0-only", "algorithm.adv_estimator"),
    (["algorithm.adv_estimator=remax"], "estimator-in-v0-only", "algorithm.adv_estimator"),
    (["trainer.experiment_name=${trainer.nothing}"], "interpolation", "experiment_name"),
    ([f"{ACTOR}.loss_agg_mode=mean"], "verl-validation", ACTOR),
]


def test_the_older_trainer_has_what_the_estimator_needs(judge: Judge) -> None:
    found = judge("algorithm.adv_estimator=remax", "trainer.use_v1=False")
    assert "estimator-in-v0-only" not in ids(found)


@pytest.mark.parametrize(("words", "kind", "key"), FAULTS)
def test_a_fault_of_the_configuration_or_the_data(
    judge: Judge, words: list[str], kind: str, key: str
) -> None:
    found = judge(*words)
    mine = [f for f in found.findings if f.id == kind and f.level == "fault" and f.key.endswith(key)]
    assert mine, [(f.id, f.key) for f in found.findings]
    assert all(f.what and (f.why or f.todo) for f in found.findings)


# What verl would run with, and not as meant.
WARNED = [
    (["trainer.logger=[console,wandb]"], "wandb-login"),  # P77
    (["trainer.project_name=p", "trainer.experiment_name=e"], "old-checkpoint"),  # P78
    ([f"{ROLLOUT}.n=1"], "group-of-one"),
    (["trainer.use_v1=False"], "deprecated-key"),
]


@pytest.mark.parametrize(("words", "kind"), WARNED)
def test_a_warning(
    judge: Judge, place: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], kind: str
) -> None:
    monkeypatch.chdir(place)
    found = judge(*words, environ={"HOME": str(place)})
    assert kind in ids(found, "warning"), found.findings
    assert not ids(found)


def test_fewer_visible_devices_than_the_default_of_eight(judge: Judge) -> None:
    found = judge(environ={"CUDA_VISIBLE_DEVICES": "0,1"})  # P04
    assert ids(found) == {"visible-devices"}
    assert "trainer.n_gpus_per_node=2" in str(only(found, "visible-devices").todo)


def test_a_file_of_another_kind_is_spoken_of_as_data_check_does(judge: Judge, place: Path) -> None:
    for name in ("rows.jsonl", "rows.csv"):
        (place / name).write_text('{"prompt": "q"}\n')
    (read,) = judge("data.train_files=rows.jsonl").findings
    (refused,) = judge("data.train_files=rows.csv").findings
    assert (read.level, refused.level) == ("note", "fault"), "verl reads JSON"
    for finding, name in ((read, "rows.jsonl"), (refused, "rows.csv")):
        (same,) = data_check.check(place / name).findings
        assert finding.document() == same.document() | {"level": finding.level}
        assert finding.todo == f"convert it: verlock data convert {place}/{name} {place}/rows.parquet"


def test_rows_that_are_not_parquet_end_a_run_with_that_command(judge: Judge, place: Path) -> None:
    (place / "rows.jsonl").write_text('{"prompt": "q"}\n')
    found = judge("data.train_files=rows.jsonl")
    with pytest.raises(DataError, match=r"convert it: verlock data convert \S+rows.jsonl"):
        prepare(found, ClimbOptions(runs=place), stand_in=False)


def test_a_program_that_is_not_the_trainer(judge: Judge) -> None:
    assert only(judge(module="verl.trainer.main_generation"), "not-the-trainer").why == (  # P09
        "verl 0.9.1 has no such module"
    )
    assert "another configuration" in str(
        only(judge(module="verl.trainer.sft_trainer"), "not-the-trainer").why
    )


def test_all_faults_are_told_at_once_and_each_unknown_key_with_the_nearest(judge: Judge) -> None:
    found = judge(
        "data.train_batch_sise=4",
        "trainer.nnode=1",
        "+trainer.val_before_train=False",
        "+actor_rollout_ref.fsdp_config.cpu_offload=True",
        f"{ACTOR}.ppo_mini_batch_size=256",
        "reward.custom_reward_function.path=gone.py",
    )
    assert ids(found) == {"unknown-key", "key-exists", "unread-key", "mini-batch", "file-missing"}
    todo = {f.key: f.todo for f in found.findings}
    assert todo["data.train_batch_sise"] == "did you mean data.train_batch_size?"
    assert todo["trainer.nnode"] == "did you mean trainer.nnodes?"
    assert todo["actor_rollout_ref.fsdp_config.cpu_offload"] == (
        f"did you mean {ACTOR}.fsdp_config.param_offload?"
    )


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        (f"{ACTOR}.loss_agg_mod", f"did you mean {ACTOR}.loss_agg_mode?"),
        ("actor_rolout_ref.rollout.temperature", f"did you mean {ROLLOUT}.temperature?"),
        # A slip of one letter in a long section is alike as a whole; the name itself must be, too.
        (f"{ACTOR}.zebra", "leave it out"),
        (f"{ROLLOUT}.colour_of_noise", "leave it out"),
    ],
)
def test_only_a_key_that_may_be_meant_is_proposed(judge: Judge, key: str, meant: str) -> None:
    (finding,) = judge(f"{key}=1").findings
    assert str(finding.todo).startswith(meant)


def test_a_key_that_is_set_twice_is_told_once_and_for_the_word_that_is_wrong(judge: Judge) -> None:
    found = judge("trainer.save_freq=20", "+trainer.save_freq=3")
    assert [(f.id, f.todo) for f in found.findings] == [("key-exists", "write trainer.save_freq=3")]


def test_what_comes_of_a_wrong_value_is_no_fault_of_its_own(judge: Judge) -> None:
    assert [(f.id, f.key) for f in judge("trainer.nnodes=two").findings] == [("wrong-type", "trainer.nnodes")]


def test_a_release_that_moves_old_rewards_reads_them_where_they_are_now() -> None:
    words = (
        "custom_reward_function.path=r.py",
        "+reward_model.reward_kwargs.x=1",
        "reward_model.reward_manager=dapo",
    )
    assert as_read(words, "0.8.0") == (
        "reward.custom_reward_function.path=r.py",
        "+reward.reward_kwargs.x=1",
        "reward.reward_manager.name=dapo",
    )
    assert as_read(words, "0.9.1") == words


def test_a_key_of_an_older_release_says_which_and_what_it_is_now(judge: Judge) -> None:
    found = judge("critic.model.fsdp_config.param_offload=True")
    (finding,) = found.findings
    assert (finding.id, finding.level) == ("unknown-key", "fault")
    assert finding.why == "it is in verl 0.3.0.post1 to 0.7.1"
    assert finding.todo == "did you mean critic.fsdp.param_offload?"


def test_keys_that_other_libraries_read_are_not_called_unread(judge: Judge) -> None:
    found = judge(
        "+actor_rollout_ref.model.override_config.attn_implementation=sdpa",
        f"+{ROLLOUT}.engine_kwargs.vllm.swap_space=4",
        f"+{ACTOR}.fsdp_config.mixed_precision.param_dtype=fp32",
        "+ray_kwargs.ray_init.num_gpus=8",
        "+data.apply_chat_template_kwargs.enable_thinking=False",
        "+reward.reward_kwargs.max_resp_len=512",
    )
    assert found.findings == ()


def test_a_configuration_of_another_version_lacks_keys(judge: Judge, place: Path) -> None:
    folder = place / "conf"
    folder.mkdir(exist_ok=True)
    (folder / "old.yaml").write_text("algorithm: {adv_estimator: grpo}\ntrainer: {nnodes: 1}\n")
    found = judge(f"--config-path={folder}", "--config-name=old", bare=True)  # P73
    missing = {f.key for f in found.findings if f.id == "missing-key"}
    assert {"data", "actor_rollout_ref", "algorithm.gamma", "trainer.n_gpus_per_node"} <= missing


def test_a_configuration_built_on_verls_own(judge: Judge, place: Path) -> None:
    folder = place / "conf"
    folder.mkdir(exist_ok=True)
    text = "hydra:\n  searchpath: [file://verl/trainer/config]\ndefaults: [ppo_trainer, _self_]\n"
    (folder / "mine.yaml").write_text(text + "trainer: {nnodes: 1, foo: 2}\n")
    found = judge(f"--config-path={folder}", "--config-name=mine")
    assert {(f.id, f.key) for f in found.findings} == {("unread-key", "trainer.foo")}


def preflight(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "harness", "preflight", "--static", *words],
        cwd=place,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_command_without_faults_gets_a_verdict_and_what_it_leaves_open(place: Path) -> None:
    done = preflight(place, "--", "python3", "-m", TRAINER, *GOOD)
    said = " ".join(done.stdout.split())
    assert done.returncode == 0, done.stderr[-2000:]
    assert "not verified: the rollout engine vllm" in said
    assert "not verified: the model Qwen/Qwen3-8B" in said
    assert "no faults; warnings: 0; nothing was started" in said


def test_the_command_ends_with_37_in_one_document_and_without_ray(place: Path) -> None:
    done = preflight(place, "--json", "--", "python3", "-m", TRAINER, *GOOD, "trainer.nnode=1")
    assert done.returncode == 37, done.stderr[-2000:]
    document: dict[str, Any] = json.loads(done.stdout)
    Preflighted.model_validate(document)  # what docs/schemas/preflight.schema.json is made from
    assert [f["id"] for f in document["findings"]] == ["unknown-key"]
    assert "Traceback" not in done.stderr
    assert "Started a local Ray instance" not in done.stdout + done.stderr


def test_what_is_elsewhere_may_be_stood_in_for(judge: Judge) -> None:
    found = judge("data.train_files=gone.parquet", "actor_rollout_ref.model.path=/gone", "trainer.nnode=1")
    assert ids(found) == {"file-missing", "model-missing", "unknown-key"}
    assert ids(standing_in(found)) == {"unknown-key"}
    assert {"file-missing", "model-missing"} <= ids(standing_in(found), "note")
