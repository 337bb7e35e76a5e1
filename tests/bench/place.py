"""Where a bench works: a folder of its own, and environments for the tools that it is measured against."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.build import sources, uv


@dataclass(frozen=True, kw_only=True)
class Place:
    """``scratch`` is emptied with the run; ``tools`` keeps environments between runs."""

    root: Path
    scratch: Path
    tools: Path

    def folder(self, name: str) -> Path:
        """A new folder below ``scratch``."""
        path = self.scratch / name
        path.mkdir(parents=True, exist_ok=True)
        return path

    def tool(self, name: str, requirements: Sequence[str], constraints: Path | None = None) -> Path:
        """The Python of an environment with these requirements, made on first use."""
        home = self.tools / name
        python = home / "bin" / "python"
        marker = home / "requirements.txt"
        wanted = "\n".join([*requirements, constraints.read_text() if constraints else ""])
        if marker.is_file() and marker.read_text() == wanted:
            return python
        environment = sources.here().environment()
        uv.run(
            ["venv", "--clear", "--seed", "--python", sys.executable, home],
            environment=environment,
            doing=f"making {name}",
        )
        limits: list[str | Path] = ["--constraints", constraints] if constraints else []
        uv.run(
            # As our own environments: a side that compiles what it imports is not compared fairly.
            ["pip", "install", "--compile-bytecode", "--python", python, *limits, *requirements],
            environment=environment,
            doing=f"installing {name}",
        )
        marker.write_text(wanted)
        return python


def seconds_of(output: str) -> float:
    """The number in the line ``seconds: N`` that a measured program prints last."""
    return float(next(line for line in reversed(output.splitlines()) if line.startswith("seconds: "))[9:])


def checked(command: Sequence[str | Path], *, cwd: Path, env: dict[str, str] | None = None) -> str:
    """Run a program to its end; its standard output. A failure ends the bench with what it said."""
    done = subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env=env or dict(os.environ),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]} ended with {done.returncode}:\n{done.stdout}{done.stderr}"[-3000:])
    return done.stdout
