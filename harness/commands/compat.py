"""Which releases of verl the ladder passes with."""

from __future__ import annotations

from typing import Annotated

import typer

from harness.commands.common import Json
from harness.console import Output


def compat(
    verl: Annotated[
        list[str] | None,
        typer.Option("--verl", metavar="VERSION", help="Only this release; may be given several times."),
    ] = None,
    profile: Annotated[str, typer.Option(help="Whose locks.")] = "cpu",
    last: Annotated[str, typer.Option("--to", help="Highest rung.")] = "ppo",
    full: Annotated[bool, typer.Option("--full", help="All rungs, up to ppo-2ranks.")] = False,
    write: Annotated[
        bool, typer.Option(help="Keep the matrix as docs/compat.json and docs/compat.md.")
    ] = True,
    as_json: Json = False,
) -> None:
    """Climb with each release of verl that the profile has a lock for, and print which passes which rung."""
    from harness.build.compat import climbed, problems, publish
    from harness.errors import OverrideError, RungFailedError
    from harness.evidence.matrix import table
    from harness.ladder.options import ORDER
    from harness.profiles import root

    if last not in ORDER:
        raise OverrideError(f"--to {last} is unknown", todo=f"one of: {', '.join(ORDER)}")
    output = Output(as_json=as_json)
    rungs = ORDER if full else ORDER[: ORDER.index(last) + 1]
    matrix = climbed(profile, verl or (), rungs=rungs, output=output)
    if write:
        publish(matrix, root() / "docs")

    def human() -> None:
        for line in table(matrix):
            output.line(line)

    output.result(matrix.model_dump(mode="json"), human)
    found = problems(matrix)
    if found and as_json:
        raise typer.Exit(RungFailedError.exit_code)
    if found:
        raise RungFailedError(*found)
