"""Newer pins for a profile."""

from __future__ import annotations

from typing import Annotated

import typer

from harness.commands.common import Json
from harness.console import Output


def update(
    profile: Annotated[str, typer.Argument(help="Whose pins are looked up.")],
    write: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Make this one change, with the locks that follow from it."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Propose newer pins, one change at a time, with the locks' difference, the audit, and the patches."""
    from harness.build.update.command import update as run

    run(profile, write=write, output=Output(as_json=as_json))
