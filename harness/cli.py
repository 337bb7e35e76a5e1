"""The command line: arguments in, one call into a room, one result out.

Rooms are imported inside the commands: ``verlock --help`` must not import torch, and a host without
the lock's packages must still be able to render, lock and read records.
"""

from __future__ import annotations

import sys
from pathlib import Path
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


Check = Annotated[
    bool, typer.Option("--check", help="Write nothing; fail if a committed file is not current.")
]
Names = Annotated[
    list[str] | None, typer.Argument(metavar="[PROFILE]...", help="Profiles; all if none is named.")
]


@app.command()
def profiles(as_json: Json = False) -> None:
    """List the hardware profiles."""
    from harness.profiles import load, names

    output = Output(as_json=as_json)
    found = [load(name) for name in names()]
    rows = [
        {"name": p.name, "short": p.short, "platform": p.hardware.platform, "summary": p.summary}
        for p in found
    ]

    def human() -> None:
        for row in rows:
            output.line(f"{row['name']:<12} {row['platform']:<12} {row['summary']}")

    output.result({"profiles": rows}, human)


@app.command()
def schema(check: Check = False, as_json: Json = False) -> None:
    """Generate the JSON Schema of the profile files, with which an editor completes and checks them."""
    from harness.build import files
    from harness.profiles import schema as generated

    changed = files.publish({generated.path(): generated.text()}, check=check, command="verlock schema")
    _changed(changed, Output(as_json=as_json))


@app.command()
def render(profiles: Names = None, check: Check = False, as_json: Json = False) -> None:
    """Render the Dockerfile and the overrides of each profile."""
    from harness.build.render import publish

    _changed(publish(profiles or (), check=check), Output(as_json=as_json))


@app.command()
def lock(profiles: Names = None, check: Check = False, as_json: Json = False) -> None:
    """Resolve each profile's software to hash-pinned locks, and check them against each other."""
    from harness.build.lock import lock as make

    output = Output(as_json=as_json)
    _changed(make(profiles or (), check=check, output=output), output)


@app.command()
def env(
    profile: Annotated[str, typer.Argument(help="Whose lock is installed.")],
    dev: Annotated[bool, typer.Option("--dev", help="Add the locked development tools.")] = False,
    as_json: Json = False,
) -> None:
    """Make the environment of a profile from its lock, if it is not there, and print its Python."""
    from harness.build.environment import ensure
    from harness.profiles import load

    output = Output(as_json=as_json)
    progress = Output(as_json=True)  # standard output carries the path alone: PYTHON=$(verlock env cpu)
    python = ensure(load(profile), output=progress, group="dev" if dev else None)
    output.result({"profile": load(profile).name, "python": str(python)}, lambda: output.line(str(python)))


def _changed(paths: list[Path], output: Output) -> None:
    from harness.build.files import shown

    def human() -> None:
        for path in paths:
            output.line(f"wrote {shown(path)}")
        if not paths:
            output.line("all current")

    output.result({"written": [shown(path) for path in paths]}, human)


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
