"""The doctor: what stands between this machine and a profile."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from harness.commands.common import Json
from harness.console import Output


def doctor(
    profile: Annotated[
        str | None, typer.Option(help="Hardware profile; the machine's own if none is named.")
    ] = None,
    facts: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Judge the machine that this file describes.")
    ] = None,
    facts_only: Annotated[
        bool, typer.Option("--facts-only", help="Print the facts as such a file, and judge nothing.")
    ] = False,
    fix: Annotated[
        bool, typer.Option("--fix", help="Do what is safe: make the environment, end what killed runs left.")
    ] = False,
    runs: Annotated[Path, typer.Option(help="Where run records are.")] = Path("runs"),
    as_json: Json = False,
) -> None:
    """Say whether this machine can run a profile: what is missing, too old, too new or in the way."""
    from harness.build.doctor.command import doctor as run

    output = Output(as_json=as_json)
    code = run(profile, facts_file=facts, facts_only=facts_only, fixing=fix, runs=runs, output=output)
    raise typer.Exit(code)
