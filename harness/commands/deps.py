"""What is really needed: which locked packages a run imports, and who asked for the rest."""

from __future__ import annotations

from typing import Annotated

import typer

from harness.commands.common import Json, go_inside
from harness.console import Output


def deps(
    profile: Annotated[str, typer.Option(help="Whose lock is measured; a GPU profile is rehearsed.")] = "cpu",
    last: Annotated[str, typer.Option("--to", help="Highest rung.")] = "ppo",
    as_json: Json = False,
) -> None:
    """Climb with every import written down: which packages each rung needs, and who asked for the rest."""
    from harness.ladder.options import known_rung

    known_rung("--to", last)
    go_inside(profile)
    from harness.ladder.deps.command import run

    run(profile, last=last, output=Output(as_json=as_json))
