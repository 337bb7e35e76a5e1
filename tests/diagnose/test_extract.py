"""The first true error under its wrappers, and not the one that is printed last."""

from __future__ import annotations

import string
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.diagnose.catalogue import Catalogue
from harness.diagnose.diagnose import diagnose_lines
from harness.diagnose.diagnosis import Diagnosis
from harness.diagnose.extract import extract
from harness.diagnose.lines import parse
from harness.diagnose.match import Evidence

WORKER_FIRST = """\
(TaskRunner pid=4120) Traceback (most recent call last):
(TaskRunner pid=4120)   File "/env/verl/utils/model.py", line 700, in load_valuehead_model
(TaskRunner pid=4120) ImportError: FlashAttention2 has been toggled on, but it cannot be used
(TaskRunner pid=4120) RuntimeError: model(/m) is not a value head model, please install trl to make it valid
Error executing job with overrides: []
Traceback (most recent call last):
ray.exceptions.RayTaskError(RuntimeError): ray::TaskRunner.run() (pid=4120, ip=10.0.0.1)
RuntimeError: model(/m) is not a value head model, please install trl to make it valid
"""
ONLY_WRAPPERS = """\
INFO worker.py: started a local Ray instance
ray.exceptions.RayTaskError(ActorDiedError): ray::TaskRunner.run() (pid=3, ip=10.0.0.1)
ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.
"""
COLOURED = "\x1b[36m(WorkerDict pid=1, ip=10.0.0.1)\x1b[0m torch.OutOfMemoryError: CUDA out of memory.\n"
HYDRA = "omegaconf.errors.ConfigAttributeError: Key 'rollot' is not in struct\n    full_key: rollot\n"
IN_A_LOADER = """\
RuntimeError: Caught ValueError in DataLoader worker process 0.
Original Traceback (most recent call last):
  File "/w/my_dataset.py", line 9, in __getitem__
    raise ValueError("row 7 has no answer")
ValueError: row 7 has no answer
"""
RETRIED = """\
Traceback (most recent call last):
  File "/w/shop.py", line 3, in find
    return cache[key]
KeyError: 'a'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/w/shop.py", line 5, in find
    raise LookupFailed("no such thing on the server")
shop.LookupFailed: no such thing on the server
"""
AT_EXIT = """\
Traceback (most recent call last):
  File "/w/a.py", line 1, in <module>
    raise ValueError("the true one")
ValueError: the true one
Exception ignored in: <function Pool.__del__ at 0x7f>
Traceback (most recent call last):
  File "/w/pool.py", line 2, in __del__
    self.queue.put(None)
AttributeError: 'NoneType' object has no attribute 'put'
"""
A_PEER = """\
[rank1]: Traceback (most recent call last):
[rank1]:   File "/w/verl/x.py", line 2, in step
[rank1]: RuntimeError: [../gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.2]:4711
[rank0]: Traceback (most recent call last):
[rank0]:   File "/w/verl/x.py", line 1, in step
[rank0]: ValueError: weights of rank 0 are gone
[rank1]: RuntimeError: Connection closed by peer
"""
NAMED_WORKER = """\
(RewardLoopWorker pid=8) Traceback (most recent call last):
(RewardLoopWorker pid=8)   File "/w/r.py", line 1, in warm
(RewardLoopWorker pid=8) ValueError: a survived one
(WorkerDict pid=9) Traceback (most recent call last):
(WorkerDict pid=9)   File "/w/w.py", line 1, in __init__
(WorkerDict pid=9) ValueError: the one that killed the actor
ray.exceptions.ActorDiedError: an error raised in its creation task, ray::WorkerDict.__init__() (pid=9)
"""
KILLED_LATER = """\
Traceback (most recent call last):
  File "/w/metrics.py", line 1, in push
ValueError: the metrics server said no
step:1 - actor/pg_loss:0.1
step:2 - actor/pg_loss:0.1
Killed
"""
VLLM = """\
ERROR 08-01 01:08:01 [core.py:515] EngineCore failed to start.
ERROR 08-01 01:08:01 [core.py:515] Traceback (most recent call last):
ERROR 08-01 01:08:01 [core.py:515]   File "/e/vllm/v1/engine/core.py", line 506, in run_engine_core
ERROR 08-01 01:08:01 [core.py:515]     engine_core = EngineCoreProc(*args, **kwargs)
ERROR 08-01 01:08:01 [core.py:515] ValueError: model type qwen9 is not known
Traceback (most recent call last):
  File "/e/vllm/v1/utils.py", line 500, in wait
    raise RuntimeError("Engine core initialization failed. " "See root cause above.")
RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}
"""

CASES = [
    pytest.param(WORKER_FIRST, "ImportError: FlashAttention2 has been toggled on", id="below the wrapper"),
    pytest.param(ONLY_WRAPPERS, "ray.exceptions.ActorDiedError: The actor died", id="only wrappers"),
    pytest.param(COLOURED, "torch.OutOfMemoryError: CUDA out of memory.", id="coloured, with an address"),
    pytest.param(HYDRA, "omegaconf.errors.ConfigAttributeError: Key 'rollot'", id="a dotted type"),
    pytest.param("(pid=33) ValueError: x\n(pid=34) KeyError: y\n", "ValueError: x", id="the first of two"),
    pytest.param(IN_A_LOADER, "ValueError: row 7 has no answer", id="in a loader's process"),
    pytest.param(RETRIED, "shop.LookupFailed: no such thing", id="a look-up that was tried first"),
    pytest.param(AT_EXIT, "ValueError: the true one", id="before the noise at exit"),
    pytest.param(A_PEER, "ValueError: weights of rank 0 are gone", id="the rank that died first"),
    pytest.param(NAMED_WORKER, "ValueError: the one that killed", id="the worker that the wrapper names"),
    pytest.param(KILLED_LATER, "Killed", id="survived, and killed later"),
    pytest.param(VLLM, "ValueError: model type qwen9 is not known", id="vLLM's own prefix"),
]


@pytest.mark.parametrize(("text", "expected"), CASES)
def test_the_first_true_error_is_the_cause(told: Callable[..., Diagnosis], text: str, expected: str) -> None:
    """The last line of such a log sends people to install trl, or to look for a dead actor."""
    assert told(text).raised.text.startswith(expected)


def test_the_wrappers_are_named_as_what_they_are(told: Callable[..., Diagnosis]) -> None:
    answer = told(WORKER_FIRST)
    assert any("please install trl" in hidden for hidden in answer.hidden_by)
    assert answer.signature == "attention-kernel-missing"
    assert (answer.file, answer.line) == ("/env/verl/utils/model.py", 700)
    assert (answer.raised.log_line, answer.raised.worker) == (3, "TaskRunner pid=4120")


QUIET = "step:1 - actor/pg_loss:0.1\nno error here: all is well\nErrorless: fine\n"


@pytest.mark.parametrize("text", [QUIET, "", "\n\n"])
def test_a_log_without_an_error_is_unknown(told: Callable[..., Diagnosis], text: str) -> None:
    answer = told(text)
    assert (answer.signature, answer.fix) == ("unknown", None)


WORDS = st.text(string.printable, max_size=300)
PARTS = st.sampled_from(
    [
        "Traceback (most recent call last):",
        '  File "x.py", line 1, in f',
        "ValueError: x",
        "ray::f() (pid=1)",
        "The above exception was the direct cause of the following exception:",
        "During handling of the above exception, another exception occurred:",
        "ray.exceptions.RayTaskError(X): ray::f() (pid=1)",
        "(WorkerDict pid=1) ",
        "\x1b[36m",
    ]
)


@given(st.lists(st.one_of(WORDS, PARTS), max_size=30).map("\n".join))
def test_any_text_is_read_without_an_error(known: Catalogue, text: str) -> None:
    """A log may hold anything; whatever it holds, the answer is one of the catalogue's or unknown."""
    answer = diagnose_lines(parse(text), known, Evidence())
    assert answer.signature in {"unknown", *(s.id for s in known.signatures)}
    assert (answer.fix is None) is (answer.signature == "unknown")


NAMES = st.sampled_from(["ValueError", "shop.errors.NoStock", "my_pkg.CustomError", "RuntimeError"])
SAYINGS = st.text("abcdefghijklm nopqrstuvwxyz", min_size=3, max_size=60).map(str.strip).filter(bool)


@given(NAMES, SAYINGS, st.integers(1, 5))
def test_a_cause_is_found_under_any_number_of_rays_wrappers(
    known: Catalogue, name: str, saying: str, depth: int
) -> None:
    wrappers = "".join(
        f"ray.exceptions.RayTaskError({name}): ray::W{level}.run() (pid={level}, ip=10.0.0.{level})\n"
        f'  File "/w/l{level}.py", line {level}, in run\n    ray.get(x)\n'
        for level in range(depth)
    )
    text = f"Traceback (most recent call last):\n{wrappers}{name}: {saying}\n"
    root = extract(parse(text), known).root
    assert root is not None
    assert (root.type, root.text) == (name, saying)


def test_a_warning_that_quotes_an_error_is_not_the_cause(known: Catalogue) -> None:
    """verl warns of each engine that is not installed; a worker killed later must not be blamed on that."""
    text = (
        "(WorkerDict pid=7, ip=10.0.0.3) /x/verl/workers/engine/__init__.py:60: UserWarning: mindspeed "
        "engine is not available: ModuleNotFoundError(\"No module named 'megatron'\")\n"
        'Traceback (most recent call last):\n  File "/x/verl/trainer/main_ppo.py", line 74, in run_ppo\n'
        "ray.exceptions.ActorUnavailableError: The actor ce45 is unavailable: RpcError: Socket closed\n"
    )
    answer = diagnose_lines(parse(text), known, Evidence())
    assert "ActorUnavailableError" in answer.cause
    assert answer.signature != "package-missing"
