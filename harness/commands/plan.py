"""Plans: what a profile's locks cost to download, and what a model takes of its memory."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from harness.commands.common import Json, go_inside
from harness.commands.wheels import plan as sizes
from harness.console import Output

# Where torch and verl are at hand without gigabytes of CUDA: sizes are the same.
_TRACES = {"linux": "cpu", "darwin": "mac-m4-16g"}


class _OrSizes(TyperGroup):
    """``verlock plan PROFILE`` is older than the group, and stays."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the command in that was always meant."""
        if args and args[0] not in self.commands and args[0] != "--help":
            args = ["sizes", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_OrSizes,
    no_args_is_help=True,
    help="What a profile costs to download and on disk (`plan PROFILE`), or a model in its memory.",
)
app.command(name="sizes")(sizes)


@app.command()
def memory(
    profile: Annotated[str, typer.Argument(help="Whose memory and settings are planned with.")],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KEY=VALUE]...", help="Hydra overrides: batch sizes, lengths, offload, GPUs."
        ),
    ] = None,
    model: Annotated[
        str, typer.Option(help="A shipped shape (Qwen2.5-0.5B), a model folder, or a config.json.")
    ] = "Qwen2.5-0.5B",
    as_json: Json = False,
) -> None:
    """Say what each phase of a PPO step takes, on each device and on the host, with no GPU and no weights."""
    from harness.profiles import load

    load(profile)
    go_inside(_TRACES[sys.platform])
    from harness.ladder.memory.command import run

    run(profile, model, overrides or [], Output(as_json=as_json))
