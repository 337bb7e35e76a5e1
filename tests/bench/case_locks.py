"""Locks: uv against pip-compile, the same requirements, hashes on, both with what they have cached."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

from measure import Aim, Case
from place import Place, checked

from harness.build import resolve, sources, uv
from harness.profiles import load

# Its resolver is pip's own. The last release that works with the pip of that day.
PIP_TOOLS = ("pip-tools==7.5.2", "pip==25.3")


def cases(place: Place) -> Iterator[Case]:
    """The cpu profile's requirements, without torch: its wheel comes from wherever this machine has it."""
    profile = load("cpu")
    folder = place.folder("locks")
    wanted = resolve.requirements(profile, profile.software.targets[0])
    source = folder / "requirements.in"
    # verl names torch itself: both resolve the release that the default index has for the profile's version.
    version = profile.software.targets[0].torch.version.partition("+")[0]
    lines = [line for line in wanted if not line.startswith("torch==")] + [f"torch=={version}"]
    source.write_text("\n".join(lines) + "\n")
    python = place.tool("pip-tools", PIP_TOOLS)
    cutoff = profile.software.exclude_newer

    def with_uv() -> float:
        (folder / "uv.lock").unlink(missing_ok=True)  # both start from the pins of an older lock
        begin = time.perf_counter()
        arguments: list[str | Path] = ["pip", "compile", "--quiet", "--generate-hashes", "--exclude-newer"]
        arguments += [
            str(cutoff),
            "--python-version",
            profile.software.python,
            "-o",
            folder / "uv.lock",
            source,
        ]
        uv.run(arguments, environment=sources.here().environment(), doing="locking with uv")
        return time.perf_counter() - begin

    def with_pip() -> float:
        (folder / "pip.lock").unlink(missing_ok=True)
        begin = time.perf_counter()
        tool = [python, "-m", "piptools", "compile", "--quiet", "--generate-hashes", "--strip-extras"]
        older = {**os.environ, "PIP_UPLOADED_PRIOR_TO": str(cutoff)}
        checked([*tool, "-o", folder / "pip.lock", source], cwd=folder, env=older)
        return time.perf_counter() - begin

    yield Case(
        id="locks",
        what="a lock of the cpu profile's requirements, with hashes",
        unit="s",
        sides={"uv": with_uv, "pip-compile": with_pip},
        rounds=2,
        aim=Aim(at_least=25, against="pip-compile"),
    )
