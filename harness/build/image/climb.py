"""``verlock climb --image``: the same command line, in the profile's image."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.build.engine import choose, find
from harness.build.image import given
from harness.build.image.run import Room, run
from harness.console import Output
from harness.errors import Problem
from harness.profiles import load


@dataclass(frozen=True, kw_only=True)
class Climb:
    """What is climbed, with all paths whole."""

    profile: str
    command: tuple[str, ...]
    runs: Path
    inputs: tuple[Path, ...]
    overrides: tuple[str, ...]
    verl_source: Path | None
    gpus: bool


def whole(text: str, *, words: Sequence[str]) -> Path | None:
    """The path that an option's value is; none where it is one of its fixed words."""
    return None if text in words else Path(text).expanduser().absolute()


def climb(asked: Climb, output: Output) -> int:
    """Climb inside; return the exit code. Standard output and error pass through as they are.

    Raises:
        OverrideError: a path that is not there, or cannot be laid into the image.
        ImageError, EnvironmentDiffersError, EngineError: as :func:`harness.build.image.run.run` says.
    """
    named, problems = given.override_paths(asked.overrides)
    own = [*asked.inputs, *([asked.verl_source] if asked.verl_source else [])]
    problems += _missing(own)
    given.refuse(problems)
    inputs = given.needed([*own, *named])
    given.refuse(given.problems([asked.runs, *inputs] if asked.runs.exists() else inputs, as_root=False))
    given.refuse(given.problems(inputs, as_root=os.getuid() == 0))
    profile = load(asked.profile)
    # A checkout goes before the locked verl.
    variables = {"PYTHONPATH": str(asked.verl_source)} if asked.verl_source else {}
    ended = run(
        profile,
        asked.command,
        asked.runs,
        engine=choose(find(), kind="docker"),
        gpus=asked.gpus,
        output=output,
        room=Room(runs=str(asked.runs), inputs=inputs, variables=variables),
        speak=_through,
    )
    if ended.out_of_memory:
        output.line(
            f"the kernel ended a process inside: the container may have {profile.hardware.memory_gib:g} GiB "
            f"(hardware.memory_gib of profiles/{profile.name}.yaml)",
            style="red",
        )
    return ended.exit_code


def _missing(paths: Iterable[Path]) -> list[Problem]:
    return [Problem(what="is not there", where=str(path)) for path in paths if not path.exists()]


def _through(out: bytes | None, err: bytes | None) -> None:
    """Bytes as they are: with --json, standard output is one document, made inside."""
    for piece, stream in ((out, sys.stdout), (err, sys.stderr)):
        if piece:
            stream.buffer.write(piece)
            stream.flush()
