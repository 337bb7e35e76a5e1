"""The README's commands can be pasted as they stand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```sh\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
# The three ways in which a line of a block can start verlock where nobody has put it on PATH.
STARTS = re.compile(r"(?:^|&& |\| )verlock ")


def test_no_command_takes_for_granted_that_verlock_is_on_the_path() -> None:
    lines = [line for block in BLOCKS for line in block.splitlines()]
    assert sum(".nox/smoke-cpu/bin/verlock " in line for line in lines) > 10
    assert not [line for line in lines if STARTS.search(line)]


@pytest.mark.parametrize("line", ["verlock data check x", "a && verlock next"])
def test_such_a_command_would_be_found(line: str) -> None:
    assert STARTS.search(line)


def test_how_to_call_it_is_said_before_the_first_command_that_does() -> None:
    assert README.index("alias verlock=") < README.index(".nox/smoke-cpu/bin/verlock watch")
