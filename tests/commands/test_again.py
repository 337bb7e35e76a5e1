"""A command line written anew: what was given, no more, and the changes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from harness.commands import again

app = typer.Typer()
SEEN: list[list[str]] = []


@app.command("go")
def go(  # noqa: PLR0917 - one parameter for each kind
    context: typer.Context,
    words: Annotated[list[str] | None, typer.Argument()] = None,
    first: Annotated[str, typer.Option("--from")] = "env",
    steps: Annotated[int, typer.Option(min=1)] = 4,
    model: str = "tiny",
    source: Path | None = None,
    leave: Annotated[list[str] | None, typer.Option()] = None,
    fork: Annotated[bool, typer.Option()] = True,
    image: Annotated[bool, typer.Option("--image")] = False,
) -> None:
    changes = {"source": Path("/whole") / source} if source else {}
    SEEN.append(again.words(context, changes, without={"image"}))


@app.command("other")
def other() -> None: ...


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([], []),
        (["--image", "--from", "ppo", "--steps=9"], ["--from=ppo", "--steps=9"]),
        (["--no-fork", "--leave", "a", "--leave", "b"], ["--leave=a", "--leave=b", "--no-fork"]),
        (["--source", "s", "x.y=-1", "+z=2"], ["--source=/whole/s", "--", "x.y=-1", "+z=2"]),
        (["--model", "-m"], ["--model=-m"]),
        (["--steps", "4", "--fork"], []),
    ],
)
def test_the_same_command_comes_out(given: list[str], expected: list[str]) -> None:
    done = CliRunner().invoke(app, ["go", *given])
    assert done.exit_code == 0, done.output
    assert SEEN[-1] == ["go", *expected]


def test_what_comes_out_is_understood_as_the_same() -> None:
    CliRunner().invoke(app, ["go", "--no-fork", "--leave", "a", "--steps", "7", "k=v"])
    once = SEEN[-1]
    CliRunner().invoke(app, once)
    assert SEEN[-1] == once
