"""The training command of a job on a cluster; the bundle's job files start it in the image."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from harness.commands.common import Json, go_inside
from harness.console import Output


def train(
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Hydra overrides: all of them.")
    ] = None,
    profile: Annotated[str, typer.Option(help="Hardware profile.")] = "cpu",
    expect: Annotated[str, typer.Option(help="The image's fingerprint, which every node must have.")] = "",
    nodes: Annotated[int, typer.Option(min=1, help="Nodes that the job is for.")] = 1,
    runs: Annotated[
        Path, typer.Option(help="Where run records go; on a cluster shared by all nodes.")
    ] = Path("runs"),
    as_json: Json = False,
) -> None:
    """Train as a handed-off job: check every node, run verl's main_ppo, leave a record; a new try goes on."""
    go_inside(profile)
    from harness.evidence import report
    from harness.ladder.climb import this_command
    from harness.ladder.train import Job
    from harness.ladder.train import train as run

    output = Output(as_json=as_json)
    job = Job(profile=profile, nodes=nodes, expect=expect, runs=runs, overrides=tuple(overrides or ()))

    def complete(folder: Path) -> None:
        report.write(folder)
        output.line(f"record: {folder}")

    done = run(job, output, this_command(), complete)
    output.result({"run": str(runs / done.id), **done.model_dump(mode="json", by_alias=True)})
