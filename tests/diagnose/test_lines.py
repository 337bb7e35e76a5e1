"""A line as its program wrote it, whatever stood before it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.diagnose.lines import parse

SAID = "ValueError: x is 3"
PREFIXES = [
    ("(TaskRunner pid=4120) ", "TaskRunner pid=4120"),
    ("(pid=4120, ip=10.0.0.1) ", "pid=4120, ip=10.0.0.1"),
    ("(WorkerDict pid=7, ip=10.0.0.1) ", "WorkerDict pid=7, ip=10.0.0.1"),
    ("\x1b[36m(WorkerDict pid=7)\x1b[0m ", "WorkerDict pid=7"),
    ("[36m(WorkerDict pid=7)[0m ", "WorkerDict pid=7"),
    ("(raylet) ", "raylet"),
    ("(autoscaler +1m16s) ", "autoscaler +1m16s"),
    ("2026-08-01T10:00:00.123Z ", ""),
    ("2026-08-01 10:00:00,123 (TaskRunner pid=3) ", "TaskRunner pid=3"),
    ("2026-08-01T10:00:00.123456789Z stderr F ", ""),
    ("3: ", "3"),
    ("3: (WorkerDict pid=7) ", "3 WorkerDict pid=7"),
    ("[rank2]: ", "rank2"),
    ("worker-1  | ", "worker-1"),
    ("(EngineCore_0 pid=9) ERROR 08-01 10:00:00 [core.py:700] ", "EngineCore_0 pid=9"),
    ("> ", ""),
    ("  50%|█████     | 1/2\r", ""),
]


@pytest.mark.parametrize(("prefix", "worker"), PREFIXES)
def test_a_prefix_is_taken_off_and_the_worker_kept(prefix: str, worker: str) -> None:
    (line,) = parse(prefix + SAID)
    assert (line.text, line.worker, line.number) == (SAID, worker, 1)


@pytest.mark.parametrize("text", ["(see the docs) for more", "f(x) = 3", "12: not a label", "    File (a)"])
def test_what_is_no_prefix_stays(text: str) -> None:
    (line,) = parse(text)
    assert line.text == text or line.worker == "12"


def test_a_warning_is_quiet() -> None:
    (line,) = parse("WARNING 08-01 10:00:00 [x.py:1] ImportError: optional thing is not there")
    assert line.quiet


LONG = [f"{letter * 130} {number}" for number, letter in enumerate("abcdef")]


def test_what_a_terminal_broke_is_one_line_again() -> None:
    broken = "\n".join(line[at : at + 80] for line in LONG for at in (0, 80))
    assert [line.text for line in parse(broken)] == LONG


def test_lines_that_were_cut_are_not_put_together() -> None:
    """Cut at a column, each line begins anew: Python's own structure says so."""
    cut = [f'  File "/{"x" * 66}.py", li', "ValueError: " + "y" * 68] * 4
    assert [line.text for line in parse("\n".join(cut))] == cut


@given(st.text(st.characters(blacklist_categories=["Cs"]), max_size=500))
def test_any_text_gives_lines_in_order(text: str) -> None:
    numbers = [line.number for line in parse(text)]
    assert numbers == sorted(numbers)
