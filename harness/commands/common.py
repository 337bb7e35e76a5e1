"""The options that several commands have, and the answer of those that write generated files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from harness.console import Output

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]
Check = Annotated[
    bool, typer.Option("--check", help="Write nothing; fail if a committed file is not current.")
]
Names = Annotated[
    list[str] | None, typer.Argument(metavar="[PROFILE]...", help="Profiles; all if none is named.")
]


def changed(paths: list[Path], output: Output) -> None:
    """Say which files were written, or that all are current."""
    from harness.build.files import shown

    def human() -> None:
        for path in paths:
            output.line(f"wrote {shown(path)}")
        if not paths:
            output.line("all current")

    output.result({"written": [shown(path) for path in paths]}, human)
