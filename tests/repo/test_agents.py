"""AGENTS.md says what is so: its commands, exit codes and rooms are the real ones."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import typer

from harness import errors
from harness.cli import app

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "AGENTS.md").read_text()
COMMANDS: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]


def options(words: str) -> tuple[Any, list[str]]:
    """The command that words name, and the long options in them up to ``--``."""
    name, *rest = words.split()
    command = COMMANDS[name]
    if hasattr(command, "commands"):
        command = command.commands[rest.pop(0)]
    own = rest[: rest.index("--")] if "--" in rest else rest
    return command, [word.split("=")[0] for word in own if word.startswith("--")]


@pytest.mark.parametrize("words", sorted(set(re.findall(r"`verlock ([a-z][^`]*)`", TEXT))))
def test_each_command_and_option_exists(words: str) -> None:
    command, given = options(words.replace("...", ""))
    known = {opt for parameter in command.params for opt in parameter.opts}
    assert set(given) <= known


def codes(kind: type[errors.VerlockError]) -> set[int]:
    return {kind.exit_code}.union(*(codes(below) for below in kind.__subclasses__()))


@pytest.mark.parametrize("page", ["AGENTS.md", "README.md"])
def test_all_exit_codes_are_listed(page: str) -> None:
    text = (ROOT / page).read_text()
    if page == "README.md":
        listed = text[text.index("Exit codes:") :].split("\n\n")[0]
    else:
        rows = text[text.index("## Exit codes") : text.index("## Change")].splitlines()
        listed = " ".join(row.split("|")[1] for row in rows if row.startswith("| "))
    numbers = {int(number) for number in re.findall(r"\b(\d{1,3})\b", listed)}
    assert numbers - {0, 1} == codes(errors.VerlockError) - {1}


def test_all_rooms_are_listed() -> None:
    rooms = {path.name for path in (ROOT / "harness").iterdir() if (path / "__init__.py").is_file()}
    listed = set(re.findall(r"`([a-z]+)`", TEXT[TEXT.index("| room |") : TEXT.index("A new room")]))
    assert rooms <= listed
