"""The fingerprint of this node: printed, checked, and compared with what was expected."""

from __future__ import annotations

from typing import Annotated

import typer

from harness.commands.common import Json, go_inside
from harness.console import Output


def fingerprint(
    profile: Annotated[str, typer.Option(help="Hardware profile.")] = "cpu",
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
    go_inside(profile)
    from harness.fingerprint.report import report

    document = report(profile, expect)

    def human() -> None:
        for name in ("environment", "image"):
            if name in document:
                output.line(f"{name:<12} {document[name]}")
        output.line(document["checked"]["line"], style="green")

    output.result(document, human)
