"""Container images: the engine, a build, and the proof that another build gives the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from harness.commands.common import Json
from harness.console import Output
from harness.errors import EngineError, NotReproducibleError


def engine(as_json: Json = False) -> None:
    """Say which container engines are here, whether they can build images, and what is missing where not."""
    from harness.build.engine import choose, find

    output = Output(as_json=as_json)
    found = find()

    def human() -> None:
        for one in found:
            output.line(f"{one.title()}: {'can build' if one.usable else f'cannot build: {one.missing}'}")
            if one.remedy:
                output.line(f"  do: {one.remedy}")
            if one.note:
                output.line(f"  {one.note}")

    usable = [one.program for one in found if one.usable]
    if not usable and not as_json:
        choose(found)  # says of each what it lacks
    document = {"chosen": usable[0] if usable else None, "engines": [one.document() for one in found]}
    output.result(document, human)
    if not usable:
        raise typer.Exit(EngineError.exit_code)


def build(
    profile: Annotated[str, typer.Argument(help="Whose image is built.")],
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Do every step again.")] = False,
    base_only: Annotated[bool, typer.Option("--base-only", help="Only make the base image.")] = False,
    update_base: Annotated[
        bool, typer.Option("--update-base", help="Take today's Debian packages, and lock them.")
    ] = False,
    frugal: Annotated[
        bool,
        typer.Option(
            "--frugal", help="Need less disk: no cache of packages, and the engine's build cache is emptied."
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Build the profile's image and its canonical archive, dist/PROFILE/image.tar and image.json."""
    from harness.build.image.make import build as run

    output = Output(as_json=as_json)
    record = run(
        profile,
        update_base=update_base,
        base_only=base_only,
        no_cache=no_cache,
        frugal=frugal,
        output=output,
    )
    output.result(record, lambda: output.line(f"built {json.dumps(record, indent=2)}", style="bold green"))


def prove(
    profile: Annotated[str, typer.Argument(help="Whose image is built twice.")], as_json: Json = False
) -> None:
    """Build the profile's image twice from nothing, and fail with each path in which the two differ."""
    from harness.build.image.prove import prove as run

    output = Output(as_json=as_json)
    proof = run(profile, output=output)
    same = f"proven: two builds, one digest, {proof['image']['manifest']}"
    output.result(proof, lambda: output.line(same, style="bold green"))


def compare(
    first: Annotated[Path, typer.Argument(help="An image archive.")],
    second: Annotated[Path, typer.Argument(help="Another.")],
    as_json: Json = False,
) -> None:
    """List each path in which two image archives differ, with the likely cause."""
    from harness.build.image.compare import compare as run

    output = Output(as_json=as_json)
    found = run(first, second)

    def human() -> None:
        for difference in found:
            output.line(difference.line())
        output.line(f"{len(found)} differences" if found else "the same image")

    document = {"identical": not found, "differences": [one.document() for one in found]}
    output.result(document, human)
    if found:
        raise typer.Exit(NotReproducibleError.exit_code)
