"""The options that several commands have, and the answer of those that write generated files."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.console import Output

if TYPE_CHECKING:
    from harness.build.environment import Group

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]
Verl = Annotated[
    str | None,
    typer.Option("--verl", metavar="VERSION", help="Another verl that the profile has a lock for."),
]
Check = Annotated[
    bool, typer.Option("--check", help="Write nothing; fail if a committed file is not current.")
]
# What a climb and a watch are given alike.
Algorithm = Annotated[str, typer.Option(help="ppo (with critic), grpo, rloo, reinforce_plus_plus or dapo.")]
Trainer = Annotated[str | None, typer.Option(help="verl's v1 trainer or v0; its own default if not given.")]
Seed = Annotated[int, typer.Option(help="Seed of model, data, rollout and training.")]
Steps = Annotated[int, typer.Option(min=1, help="Training steps of the ppo rung.")]
WithoutPatch = Annotated[list[str] | None, typer.Option(help="Leave a patch out, by name.")]
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


def go_inside(profile: str, *, source: Path | None = None, group: Group | None = None) -> None:
    """Go on in the profile's own environment, which is made from its lock if need be; return if this is it.

    ``source`` is a verl checkout that goes before the locked verl; ``group`` adds the development tools.
    """
    if not inside(profile, group=group):
        from harness.build.enter import enter

        checkout = source.expanduser().resolve() if source else None
        enter(profile, sys.argv[1:], source=checkout, output=Output(as_json=True), group=group)


def inside(profile: str, *, group: Group | None = None) -> bool:
    """Whether this interpreter is the profile's environment, made from the lock as it is now.

    With ``group`` the lock of the development tools must be among those it was made from.

    An image holds one environment and no means to make another, so it is always inside: what differs there
    is said by the check of the installation (harness/fingerprint/verify.py).
    """
    from harness.fingerprint.lock import altered, marker
    from harness.profiles import load

    made = marker()
    in_image = find_spec("harness.build") is None
    if in_image or made is None:
        return in_image
    return not any(altered(load(profile), made)) and (group is None or len(made["locks"]) > 1)
