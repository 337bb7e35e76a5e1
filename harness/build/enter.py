"""Goes on in a profile's environment: the same command line, another interpreter."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NoReturn

from harness.build.environment import Group, ensure
from harness.console import Output
from harness.profiles import load, root


def enter(
    profile: str, arguments: list[str], *, source: Path | None, output: Output, group: Group | None = None
) -> NoReturn:
    """Replace this process by ``verlock`` in the environment of ``profile``; the working directory stays."""
    python, variables = prepared(profile, source=source, output=output, group=group)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(python, [str(python), "-P", "-m", "harness", *arguments], variables)  # noqa: S606 - no shell


def prepared(
    profile: str, *, source: Path | None, output: Output, group: Group | None = None
) -> tuple[Path, dict[str, str]]:
    """The Python of the environment of ``profile``, made from its lock if need be, and what to start it with.

    ``source`` is a verl checkout that goes before the locked verl; ``group`` adds the development tools.

    Raises what :func:`harness.build.environment.ensure` raises.
    """
    python = ensure(load(profile), output=output, group=group)
    # Tools of the environment come first on PATH; the caller's virtual environment is left.
    variables = {k: v for k, v in os.environ.items() if k not in {"VIRTUAL_ENV", "PYTHONHOME"}}
    variables["PATH"] = os.pathsep.join([str(python.parent), os.environ.get("PATH", "")])
    # The caller's PYTHONPATH is left behind: a folder `trl` or `harness` on it would replace what is locked.
    if os.environ.get("PYTHONPATH"):
        output.line("PYTHONPATH is not used: the environment holds what the lock says and nothing else")
    variables["PYTHONPATH"] = os.pathsep.join([str(source), str(root())] if source else [str(root())])
    return python, variables
