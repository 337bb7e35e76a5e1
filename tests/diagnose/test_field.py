"""Kinds of failures in the words of other libraries and versions than those the catalogue was written for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.diagnose.diagnosis import Diagnosis
from harness.diagnose.host import Host

FIELD: list[dict[str, Any]] = yaml.safe_load(
    Path(__file__).with_name("field.yaml").read_text(encoding="utf-8")
)
HOST = Host(gpus=8)


def log_of(case: dict[str, Any]) -> str:
    """The message at the end of a worker's traceback, with the driver's wrapper around it."""
    file = case.get("file", "/w/verl/workers/engine_workers.py")
    lines = [
        "Traceback (most recent call last):",
        f'  File "{file}", line 42, in {case.get("function", "update_actor")}',
        "    output = self.engine.train_batch(data)",
        *case["text"].splitlines(),
    ]
    return "".join(f"(WorkerDict pid=811) {line}\n" for line in lines) + (
        "ray.exceptions.ActorDiedError: The actor died because of an error raised in its creation task\n"
    )


@pytest.mark.parametrize("case", FIELD, ids=lambda case: f"{case['signature']}: {case['text'][:48]}")
def test_a_kind_is_known_in_other_words(told: Callable[..., Diagnosis], case: dict[str, Any]) -> None:
    answer = told(log_of(case), HOST)
    assert answer.signature == case["signature"], answer
    assert (answer.fix is None) == (case["signature"] == "unknown")
    assert case["text"].split(": ", 1)[1][:30] in answer.raised.text


def test_the_same_once_spoilt(told: Callable[..., Diagnosis], spoil: Callable[[str], str]) -> None:
    changed = {}
    for case in FIELD:
        # A log has long lines, by which a terminal's width is known.
        before = ("(TaskRunner pid=4) {" + ", ".join(f"'key_{n}': {n}" for n in range(30)) + "}\n") * 6
        answer = told(spoil(before + log_of(case)), HOST)
        if answer.signature != case["signature"]:
            changed[case["text"]] = (case["signature"], answer.signature, answer.raised.text)
    assert not changed
