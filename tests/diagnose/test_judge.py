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
    assert (answer.fix, answer.scope, answer.sure) == (None, "unknown", "unknown")


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
