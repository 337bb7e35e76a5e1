"""The class of a failure that no signature knows: told by words and by the code that raised it."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from harness.diagnose.catalogue import Catalogue
from harness.diagnose.diagnose import diagnose_lines
from harness.diagnose.diagnosis import Diagnosis
from harness.diagnose.lines import parse
from harness.diagnose.match import Evidence, distinct

LIBRARY = "/opt/venv/lib/python3.12/site-packages"
# The error's words, and the innermost frame that raised it (None: no stack in the report).
WORDS = [
    ("RuntimeError: CUDA error: an illegal memory access was encountered", None, "backend"),
    ("RuntimeError: Expected all tensors to be on the same device, but found cpu", None, "backend"),
    ("HW Exception by GPU node-9 (Agent handle: 0x5630) reason :GPU Hang", None, "backend"),
    ("AssertionError: Expects sharded strategy", f"{LIBRARY}/torch/distributed/fsdp/api.py", "distributed"),
    ("RuntimeError: aten.mm.default: got mixed torch.Tensor and DTensor", None, "distributed"),
    ("RpcError: RPC error: Socket closed rpc_code: 14, raylet died", None, "distributed"),
    ("training hangs after the first rollout, no exception", None, "distributed"),
    ("ValueError: Image features and image tokens do not match: tokens: 8, features 7", None, "data"),
    ("entropy collapses to 0 after 20 steps of GRPO", None, "model-logic"),
    ("OSError: [Errno 5] Input/output error: '/ckpt'", None, "resource"),
    ("ImportError: attempted relative import with no known parent package", None, "environment"),
    ("ValueError: rollout_rs_threshold must be a single upper bound", None, "config"),
    ("NotImplementedError: Unknown backend: tpu", None, "config"),
    ("AssertionError: Optimizer state dict not found in ['model']", None, "data"),
    ("AssertionError: worker_cls int should be a subclass of Worker", None, "distributed"),
    ("RuntimeError: pidfd_getfd: Operation not permitted", None, "environment"),
    ("ValueError: position_ids should be a 3D tensor of shape (4, batch_size, seq_length)", None, "backend"),
    ("[ERROR] TBE Subprocess[task_distribute] raise error[], main process disappeared!", None, "backend"),
    ("core_worker.cc:219: Check failed: objects_valid", None, "distributed"),
    # What little more than a type tells, of a log whose words are those of such a run.
    ("AssertionError: role_worker_mapping.keys()", None, "config"),
    ("AttributeError: 'MoELayer' object has no attribute 'linear_fc9'", None, "environment"),
    ("KeyError: 'rollout_is_weights'", None, "data"),
    ("RuntimeError: the rollout of the actor ended", None, "backend"),
    ("(main_task pid=19) RecursionError: maximum recursion depth exceeded", None, "model-logic"),
    ("TimeOutError when ray::WorkerDict.critic_init_model", None, "distributed"),
    ("ray.exceptions.RayTaskError(KeyError) at a certain step of GRPO", None, "data"),
]
# What people write of a run in a sentence or two.
NOTES = [
    ("VLLM agent_loop returns garbled output for all prompts", "model-logic"),
    (
        "In verl both the reward and the response length keep fluctuating, with no upward momentum",
        "model-logic",
    ),
    ("verl的reward会从0.5涨到0.6之后开始震荡", "model-logic"),
    ("vLLM rollout DP>1 fails when a replica spans multiple nodes", "distributed"),
    ("sglang multiturn problem: rollout never finishes", "distributed"),
    ("异步训练脚本运行后就卡死了", "distributed"),
    ("Unexpected OOM and the process seems to be forked", "resource"),
    ("vllm_ascend 0.13.0 fails to replace ApplyRotaryEmb during rollout initialization", "environment"),
    ("model_merger: I don't know where the other 8 checkpoint files are", "data"),
    ("multi-turn SFT: concat_tokens 分词 warns in every assistant message of qwen3", "data"),
    ("set actor_rollout_ref.model.use_liger=True and use_fused_kernels=True of verl", "config"),
    ("verl: save_checkpoint of Megatron is not implemented", "environment"),
    ("the model generated a tool search call, but the system did not execute it", "model-logic"),
    ("Qwen3-VL-30B with shape invalid for input", "backend"),
    ("rollout and training get the same GPUs with NOSET_CUDA_VISIBLE_DEVICES=1", "distributed"),
]
PLACES = [
    ("TypeError: out of range", "/w/verl/workers/config/actor.py", "config"),
    ("TypeError: not a lattice", f"{LIBRARY}/vllm/config/parallel.py", "config"),
    ("TypeError: no such thing", f"{LIBRARY}/datasets/arrow_dataset.py", "data"),
    ("RuntimeError: odd", "/w/verl/trainer/ppo/core_algos.py", "model-logic"),
    ("AssertionError: shape", f"{LIBRARY}/flash_attn/ops/triton/cross_entropy.py", "backend"),
    ("ValueError: odd", f"{LIBRARY}/torch/distributed/distributed_c10d.py", "distributed"),
    ("TypeError: 'NoneType' object is not callable", f"{LIBRARY}/sglang/srt/server.py", "environment"),
    ("asyncio.exceptions.TimeoutError", f"{LIBRARY}/vllm/engine/async_llm_engine.py", "distributed"),
    ("KeyError: 'group_idx'", "/w/verl/experimental/agent_loop/agent_loop.py", "data"),
]


def log_of(text: str, file: str | None) -> str:
    if file is None:
        return text
    return f'Traceback (most recent call last):\n  File "{file}", line 7, in run\n    call()\n{text}\n'


@pytest.mark.parametrize(("text", "file", "expected"), [*WORDS, *PLACES])
def test_the_class_is_told_and_nothing_more(
    told: Callable[..., Diagnosis], text: str, file: str | None, expected: str
) -> None:
    answer = told(log_of(text, file))
    assert (answer.signature, answer.failure_class) == ("unknown", expected), answer
    assert answer.judged_by
    assert (answer.fix, answer.sure) == (None, "unknown")


@pytest.mark.parametrize(("text", "expected"), NOTES)
def test_a_few_words_tell_the_class(told: Callable[..., Diagnosis], text: str, expected: str) -> None:
    answer = told(text)
    assert (answer.signature, answer.failure_class, answer.fix) == ("unknown", expected, None), answer
    # The same words of another program's traceback tell nothing.
    elsewhere = told(log_of(f"ShopError: {text}", "/srv/shop/cart.py"))
    assert (elsewhere.signature, elsewhere.failure_class) == ("unknown", "unknown"), elsewhere


@pytest.mark.parametrize(
    ("text", "signature"),
    [
        ("[Bug] verl 0.5.0 is incompatible with vLLM v1 API when using LoRA", "versions-do-not-fit"),
        ("the multi turn example of verl: the model crashes and appears Nan.", "not-finite"),
        ("I'm getting OOM when the backward pass for the actor happens", "gpu-memory"),
        ("PID:4 Memory_Allocation_Failure(EL0004): Failed to allocate memory requested", "gpu-memory"),
        ("Batch size > 2: Immediate Ray OOM errors.", "host-memory"),
        ("内存突然炸了", "host-memory"),
        ("(WorkerDict pid=13) /usr/bin/ld: cannot find -lcuda", "compiler-missing"),
        ("torch.distributed.DistBackendError", "peer-lost"),
    ],
)
def test_a_few_words_are_enough_for_a_signature(
    told: Callable[..., Diagnosis], text: str, signature: str
) -> None:
    assert told(text).signature == signature


@pytest.mark.parametrize(
    "text",
    [
        "my website hangs when I log in",
        "KeyError: 'customer'",
        "AttributeError: 'NoneType' object has no attribute 'upper'",
        "RuntimeError: cannot schedule new futures after shutdown",
        "FileNotFoundError: [Errno 2] No such file or directory: 'settings.toml'",
        "ConnectionRefusedError: [Errno 111] Connection refused",
        "our kernel module of the camera driver does not compile",
        "wrong result in the invoice, versions differ",
        "the loss of a package in the mail",
        "the shop's checkout fails for orders of several nodes",
    ],
)
def test_a_few_words_of_another_program_tell_nothing(told: Callable[..., Diagnosis], text: str) -> None:
    answer = told(text)
    assert (answer.signature, answer.failure_class, answer.fix) == ("unknown", "unknown", None), answer


def test_what_is_said_of_a_note_is_not_said_of_a_log(told: Callable[..., Diagnosis]) -> None:
    """A log has a form of its own for what happened; a word in one of its lines is no report."""
    words = "verl: the validation reward is not what we expect, error bars are printed"
    assert told(words).failure_class == "model-logic"
    lines = "\n".join(f"step:{n} - lr:0.{n}" for n in range(8))
    assert told(f"{lines}\n{words}\n{lines}").failure_class == "unknown"


@pytest.mark.parametrize(
    ("text", "scope"),
    [
        ("AssertionError: role_worker_mapping.keys()", "general"),
        ("KeyError: 'rollout_is_weights'", "general"),
        ("RuntimeError: CUDA error: an illegal memory access was encountered", "unknown"),
    ],
)
def test_the_scope_is_told_where_the_class_makes_it_plain(
    told: Callable[..., Diagnosis], text: str, scope: str
) -> None:
    answer = told(text)
    assert (answer.signature, answer.scope) == ("unknown", scope)


CUT = """\
Traceback (most recent call last):
  File "{0}/verl/trainer/fsdp_sft_trainer.py", line 458, in fit
    for data in tqdm(
  File "{1}", line 708, in step
    call()
"""


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        (f"{LIBRARY}/torch/utils/data/dataloader.py", "data"),
        (f"{LIBRARY}/vllm/v1/worker/gpu_model_runner.py", "backend"),
    ],
)
def test_a_log_cut_inside_a_traceback_has_its_place(
    told: Callable[..., Diagnosis], file: str, expected: str
) -> None:
    answer = told(CUT.format("/w", file))
    assert (answer.signature, answer.failure_class) == ("unknown", expected), answer
    foreign = told(
        CUT.format("/srv", "/srv/shop/cart.py").replace("/verl/trainer/fsdp_sft_trainer", "/shop/a")
    )
    assert foreign.failure_class == "unknown"


def test_an_error_indented_like_its_source_is_read(told: Callable[..., Diagnosis]) -> None:
    answer = told(
        f'  File "{LIBRARY}/vllm/lora/ops/triton_ops/lora_shrink_op.py", line 149, in _lora_shrink\n'
        "    assert token_lora_mapping.size(0) == M\n"
        "    AssertionError\n"
    )
    assert answer.cause.startswith("AssertionError")
    assert answer.failure_class in ("config", "backend")


def test_english_words_are_found_between_chinese_ones(told: Callable[..., Diagnosis]) -> None:
    assert told("还是在save checkpoint时CPU OOM。").signature == "host-memory"


@pytest.mark.parametrize(("text", "file", "_expected"), [*WORDS, *PLACES])
def test_without_kinds_the_class_is_unknown(
    known: Catalogue, text: str, file: str | None, _expected: str
) -> None:
    """The check that the kinds do the work: taken away, nothing tells the class."""
    (ours,) = known.files
    without = Catalogue(files=(ours.model_copy(update={"kinds": ()}),))
    answer = diagnose_lines(parse(log_of(text, file)), without, Evidence())
    assert (answer.failure_class, answer.judged_by) == ("unknown", None)


@pytest.mark.parametrize(("text", "_file", "_expected"), PLACES)
def test_the_same_words_in_another_program_tell_nothing(
    told: Callable[..., Diagnosis], text: str, _file: str, _expected: str
) -> None:
    answer = told(log_of(text, "/srv/shop/cart.py"))
    assert (answer.signature, answer.failure_class) == ("unknown", "unknown"), answer


def test_a_known_failure_is_not_judged(told: Callable[..., Diagnosis]) -> None:
    answer = told("ValueError: max_num_batched_tokens (8192) is smaller than max_model_len (9216).")
    assert answer.known
    assert answer.judged_by is None


def test_what_cpp_threw_is_the_cause_of_an_abort(told: Callable[..., Diagnosis]) -> None:
    """Neither Ray's wrapper nor the leaked memory that Python counts at its end."""
    answer = told(
        "(WorkerDict pid=31) terminate called after throwing an instance of 'c10::Error'\n"
        "(WorkerDict pid=31)   what():  CUDA error: an illegal memory access was encountered\n"
        "(WorkerDict pid=31) Fatal Python error: Aborted\n"
        "(WorkerDict pid=31) resource_tracker.py:216: UserWarning: resource_tracker: There appear to be 1 "
        "leaked shared_memory objects to clean up at shutdown\n"
        "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n"
    )
    assert "illegal memory access" in answer.cause
    assert (answer.signature, answer.failure_class) == ("unknown", "backend")


@pytest.mark.parametrize(
    "sign", ["Fatal Python error: Segmentation fault", "*** SIGFPE received at time=1 on cpu 2 ***"]
)
def test_a_crash_is_no_want_of_memory(told: Callable[..., Diagnosis], sign: str) -> None:
    log = (
        f"(WorkerDict pid=55) {sign}\n"
        "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n"
    )
    answer = told(log)
    assert (answer.signature, answer.failure_class, answer.fix) == ("unknown", "environment", None)
    assert answer.cause == sign
    assert told(log.replace(sign, "step")).signature == "host-memory"


def test_of_lines_that_differ_in_numbers_the_first_few_are_looked_at(told: Callable[..., Diagnosis]) -> None:
    """And a sign after ten thousand of them is still found: a hang has no traceback, but a long log."""
    steps = [f"(TaskRunner pid=4) step:{n} - actor/loss:0.{n} - timing_s/step:{n}.5" for n in range(10_000)]
    kept = list(distinct(parse("\n".join(steps))))
    assert [line.text for line in kept] == [step.partition(") ")[2] for step in steps[: len(kept)]]
    assert 1 <= len(kept) <= 50
    sign = "(autoscaler +26s) Error: No available node types can fulfill resource request {'GPU': 8.0}."
    assert told("\n".join([*steps, sign])).signature == "ray-cannot-schedule"


def test_no_pattern_searches_a_long_word_again_and_again(known: Catalogue) -> None:
    """Twice the length takes about twice the time; what searched anew at each letter took six times it."""

    def seconds(length: int) -> float:
        lines = parse("ValueError: " + "_a_b_c_d" * (length // 8))
        begin = time.process_time()
        diagnose_lines(lines, known, Evidence())
        return time.process_time() - begin

    seconds(8_000)  # the patterns are compiled once
    assert min(seconds(32_000) for _ in range(3)) < 10 * min(seconds(8_000) for _ in range(3))
