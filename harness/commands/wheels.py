"""What stands in the locked wheels, before anything is installed; and the environment made from them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from harness.commands.common import Json, Verl
from harness.console import Output


def audit(
    profile: Annotated[str, typer.Argument(help="Whose GPU must run what the wheels hold.")],
    wheel: Annotated[
        list[Path] | None, typer.Option(help="Judge this wheel file; may be given several times.")
    ] = None,
    installed: Annotated[
        Path | None, typer.Option(metavar="PYTHON", help="Judge what is installed for this interpreter.")
    ] = None,
    remote: Annotated[
        bool, typer.Option("--remote", help="Judge samples of the locked wheels on the index (the default).")
    ] = False,
    torch: Annotated[
        str | None, typer.Option(help="With --remote: this version in place of the lock's.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Say whether the profile's GPU can run the CUDA libraries of its locked wheels, library by library."""
    from harness.build.audit.command import audit as run

    if sum([bool(wheel), bool(installed), remote or bool(torch)]) > 1:
        raise typer.BadParameter("--wheel, --installed and --remote (with --torch) exclude each other")
    output = Output(as_json=as_json)
    code = run(profile, output=output, wheels=wheel or (), installed=installed, torch=torch)
    raise typer.Exit(code)


def plan(
    profile: Annotated[str, typer.Argument(help="Whose locks are measured.")],
    check: Annotated[
        bool, typer.Option("--check", help="Fail where docker/budgets.yaml is exceeded.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Say what a profile costs to download and on disk, by package, before anything happens."""
    from harness.build.plan import plan as run

    run(profile, check=check, output=Output(as_json=as_json))


def env(
    profile: Annotated[str, typer.Argument(help="Whose lock is installed.")],
    verl: Verl = None,
    dev: Annotated[bool, typer.Option("--dev", help="Add the locked development tools.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Make it anew, even if it is there.")] = False,
    as_json: Json = False,
) -> None:
    """Make the environment of a profile from its lock, if it is not there, and print its Python."""
    from harness.build.environment import ensure
    from harness.profiles import load, releases

    output = Output(as_json=as_json)
    wanted = load(releases.named(profile, verl))
    progress = Output(as_json=True)  # standard output carries the path alone: PYTHON=$(verlock env cpu)
    python = ensure(wanted, output=progress, group="dev" if dev else None, fresh=fresh)
    document = {"profile": wanted.name, "verl": wanted.software.verl, "python": str(python)}
    output.result(document, lambda: output.line(str(python)))
