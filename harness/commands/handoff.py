"""Handing an image on: the bundle for a cluster, its check, and what a local run says about the cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from harness.commands.common import Json
from harness.console import Output
from harness.errors import VerifyError


class _Group(TyperGroup):
    """``verlock handoff PROFILE`` is ``verlock handoff bundle PROFILE``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put in the command that is left out."""
        if args and args[0] not in self.commands and args[0] != "--help":
            args = ["bundle", *args]
        return list(super().parse_args(ctx, args))


app = typer.Typer(
    cls=_Group,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Bundle a proven image for a cluster: `verlock handoff PROFILE`; also `verify`, `transfer`.",
)


@app.command()
def bundle(
    profile: Annotated[str, typer.Argument(help="Whose image is handed on.")],
    run: Annotated[
        Path | None, typer.Option(help="A local run, whose overrides are carried over where they hold.")
    ] = None,
    runs: Annotated[
        Path | None, typer.Option(help="Where the run that proves the image is looked for.")
    ] = None,
    unproven: Annotated[
        bool, typer.Option("--unproven", help="Hand on an image that no run proves; the bundle says so.")
    ] = False,
    registry: Annotated[
        str | None, typer.Option(help="HOST/PATH: push the image there, and bundle its reference.")
    ] = None,
    repository: Annotated[
        str | None, typer.Option(help="HOST/PATH where the cluster has the image; nothing is pushed.")
    ] = None,
    sign: Annotated[Path | None, typer.Option(help="A cosign key to sign the bundle with.")] = None,
    name: Annotated[str | None, typer.Option(help="The job's name.")] = None,
    nodes: Annotated[int | None, typer.Option(min=1, help="Nodes.")] = None,
    gpus_per_node: Annotated[int | None, typer.Option(min=0, help="GPUs a node.")] = None,
    time_limit: Annotated[str | None, typer.Option(help="HOURS:MM:SS.")] = None,
    queue: Annotated[str | None, typer.Option(help="Slurm's partition, Kueue's queue.")] = None,
    volume: Annotated[
        list[str] | None, typer.Option(help="/data=FOLDER or /data=pvc:CLAIM; also /models, /runs.")
    ] = None,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", help="KEY=VALUE: a Hydra override of the job.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Make dist/PROFILE/handoff: image, manifest, SBOM, sums and job files, from an image that was proven."""
    from harness.handoff.bundle import Order
    from harness.handoff.bundle import bundle as make
    from harness.handoff.parameters import Asked

    if registry and repository:
        raise typer.BadParameter("--registry pushes, --repository says where the image is: give one of them")
    output = Output(as_json=as_json)
    asked = Asked(
        name=name,
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        time_limit=time_limit,
        queue=queue,
        volumes=tuple(volume or ()),
        overrides=tuple(overrides or ()),
    )
    order = Order(
        asked=asked,
        runs=runs,
        repository=registry or repository,
        push=registry is not None,
        unproven=unproven,
        key=sign,
        run=run,
    )
    folder, manifest = make(profile, order, output)

    def human() -> None:
        output.line(manifest.proof.statement, style="green" if manifest.proof.run else "bold red")
        for text in manifest.proof.not_verified:
            output.line(f"  not verified: {text}")
        output.line(f"image: {manifest.image.reference}")
        output.line(f"bundle: {folder} (check it with: python3 verify.py)")

    output.result({"bundle": str(folder), **manifest.model_dump(mode="json")}, human)


@app.command()
def verify(
    folder: Annotated[Path, typer.Argument(help="A bundle.")],
    digest: Annotated[str | None, typer.Option(help="The image that it must hold: sha256:...")] = None,
    key: Annotated[Path | None, typer.Option(help="The sender's public key.")] = None,
    as_json: Json = False,
) -> None:
    """Check a bundle, offline; the verify.py inside it is the same check and needs only Python."""
    from harness.handoff import verify as checks

    output = Output(as_json=as_json)
    place = checks.locate(folder)
    found = checks.check(place, digest=digest, key=key)
    if found:
        raise VerifyError(*found)
    rests = checks.trust(place, digest=digest, key=key)
    output.result(
        {"bundle": str(place), "verified": True, "findings": [], "trust": rests},
        lambda: output.line(f"verified: {rests}", style="green"),
    )


@app.command()
def transfer(
    run: Annotated[Path, typer.Argument(help="A run folder, such as runs/latest.")],
    profile: Annotated[str, typer.Argument(help="The cluster's profile.")],
    as_json: Json = False,
) -> None:
    """Say key by key what a local run's overrides are worth on a cluster; also in RUN/transfer.json."""
    from harness.evidence.files import replace_text
    from harness.evidence.model import load as load_run
    from harness.handoff import transfer as judging
    from harness.handoff.overrides import for_job
    from harness.profiles import load

    output = Output(as_json=as_json)
    local, target = load_run(run), load(profile)
    size = target.handoff
    ranks = size.gpus_per_node or 1
    job = for_job(target, name=f"verlock-{target.short}", nodes=size.nodes, ranks=ranks, asked={})
    found = judging.transfer(local, load(local.profile), target, job)
    folder = run if run.is_dir() else run.parent
    replace_text(folder / judging.FILE, found.text(), what="write what carries over")

    def human() -> None:
        for line in judging.table(found):
            output.line(line)

    output.result(found.model_dump(mode="json"), human)
