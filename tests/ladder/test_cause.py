"""The first error of a trainer's output, not the one that Ray wraps around it."""

from __future__ import annotations

import pytest

from harness.ladder.cause import first_error

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
ONLY_THE_WRAPPER = """\
INFO worker.py: started a local Ray instance
ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.
ray.exceptions.RayActorError: once more
"""
COLOURED = "\x1b[36m(WorkerDict pid=1, ip=10.0.0.1)\x1b[0m torch.OutOfMemoryError: CUDA out of memory.\n"
QUIET = "step:1 - actor/pg_loss:0.1\nno error here: all is well\nErrorless: fine\n"
HYDRA = "omegaconf.errors.ConfigAttributeError: Key 'rollot' is not in struct\n    full_key: rollot\n"

CASES = [
    pytest.param(WORKER_FIRST, "ImportError: FlashAttention2 has been toggled on", id="below the wrapper"),
    pytest.param(ONLY_THE_WRAPPER, "ray.exceptions.ActorDiedError: The actor died", id="only wrappers"),
    pytest.param(COLOURED, "torch.OutOfMemoryError: CUDA out of memory.", id="coloured, with an address"),
    pytest.param(HYDRA, "omegaconf.errors.ConfigAttributeError: Key 'rollot'", id="a dotted type"),
    pytest.param("(pid=33) ValueError: x\nKeyError: y\n", "ValueError: x", id="the first of two"),
]


@pytest.mark.parametrize(("text", "expected"), CASES)
def test_the_first_error_is_found(text: str, expected: str) -> None:
    """The last line of such a log sends people to install trl, or to look for a dead actor."""
    found = first_error(text.splitlines())
    assert found is not None
    assert found.startswith(expected)


@pytest.mark.parametrize("text", [QUIET, ""])
def test_no_error_is_none(text: str) -> None:
    assert first_error(text.splitlines()) is None
