"""The fingerprint of this node: printed, checked, and compared with what was expected."""

from __future__ import annotations

from typing import Annotated

import typer

from harness.commands.common import Json, go_inside, inside
from harness.console import Output


def fingerprint(
    profile: Annotated[
        str | None,
        typer.Option(help="Hardware profile; without it, that of this environment or image, or cpu."),
    ] = None,
    expect: Annotated[
        str | None,
        typer.Option(
            metavar="SHA|FILE",
            help="SHA-256 of the environment or image; or a run.json or manifest with a fingerprint.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Check all that is installed here against the lock, and print its fingerprint; exit 13 if it differs."""
    output = Output(as_json=as_json)
    from harness.fingerprint.lock import marker

    name = profile or str((marker() or {}).get("profile", "cpu"))
    if not inside(name):
        _is_here(name)
    go_inside(name)
    from harness.fingerprint.report import report

    document = report(name, expect)

    def human() -> None:
        for name in ("environment", "image"):
            if name in document:
                output.line(f"{name:<12} {document[name]}")
        output.line(document["checked"]["line"], style="green")

    output.result(document, human)


def _is_here(profile: str) -> None:
    """What is not installed is not made for the sake of a check."""
    from harness.build.environment import find
    from harness.errors import EnvironmentDiffersError
    from harness.profiles import load

    if find(load(profile)) is None:
        raise EnvironmentDiffersError(
            f"the environment of {profile} is not on this machine",
            why="there is nothing to check",
            todo=f"`verlock env {profile}` makes it",
        )
