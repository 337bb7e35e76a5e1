"""The command line: arguments in, one call into a room, one result out.

Rooms are imported inside the commands: ``verlock --help`` must not import torch, and a host without
the lock's packages must still be able to render, lock and read records.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from harness import __version__
from harness.console import Output
from harness.errors import VerlockError

app = typer.Typer(
    name="verlock",
    help="Pinned, provable environments for verl, and the harness that proves them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]


def _show_version(value: bool) -> None:
    if value:
        typer.echo(f"verlock {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Hold the options that come before a command."""


def main() -> None:
    """Run the command line; a :class:`VerlockError` becomes a message and its exit code."""
    output = Output(as_json="--json" in sys.argv[1:])
    try:
        app()
    except VerlockError as error:
        output.error(error)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
