"""One run of the engine's build, with its lines as they come, and what its failures mean."""

from __future__ import annotations

import re
import subprocess
from collections import deque
from collections.abc import Sequence

from harness.build.engine import Engine
from harness.console import Output
from harness.errors import BuildError, DiskFullError, EngineError, VerlockError

_STOPPED = (
    "cannot connect to the docker daemon",
    "error during connect",
    "error reading from server: eof",
    "transport is closing",
    "connection refused",
    "closing transport",
    "unexpected eof",
    "context canceled",
)
# Only where the base is looked up: a step that cannot reach its index fails for another reason.
_NO_BASE = re.compile(
    r"> \[internal\] load metadata for|failed to resolve source metadata|pull access denied|manifest unknown",
    re.IGNORECASE,
)
_KEPT_LINES = 400


def run(engine: Engine, arguments: Sequence[str], *, output: Output, doing: str) -> list[str]:
    """Run a command of the engine and return its last lines; each is shown when it comes.

    Raises:
        EngineError: the daemon went away.
        DiskFullError: no space left.
        BuildError: anything else that failed.
    """
    lines: deque[str] = deque(maxlen=_KEPT_LINES)
    with subprocess.Popen(
        engine.command(*arguments),
        env=engine.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        errors="replace",
    ) as process:
        for line in process.stdout or ():
            lines.append(line.rstrip())
            output.line(f"  {line.rstrip()}")
    if process.returncode != 0:
        raise explain(list(lines), doing=doing)
    return list(lines)


def explain(lines: Sequence[str], *, doing: str) -> VerlockError:
    """The error that an engine's last lines stand for. Pure; wordings of Docker 20.10 to 28."""
    text = "\n".join(lines)
    lower = text.lower()
    why = _telling(lines)
    if "no space left on device" in lower:
        return DiskFullError(
            f"{doing}: no space left on the disk of the engine",
            why=why,
            todo="free some (docker system df shows what the engine holds), then run the same command again",
        )
    if any(word in lower for word in _STOPPED):
        return EngineError(
            f"{doing}: the engine stopped",
            why=why,
            todo="start it again (in CI: .ci/engine), then run the same command again",
        )
    if _NO_BASE.search(text):
        return BuildError(
            f"{doing}: the base image cannot be had",
            where="image.base of the profile",
            why=why,
            todo="check the name and the digest, or use `base: bootstrap`, which needs no registry",
        )
    return BuildError(f"{doing}: a step failed", why=why, todo="the lines above say which step, and why")


def _telling(lines: Sequence[str]) -> str | None:
    """The lines that say most: errors, else the last ones."""
    errors = [
        line.strip() for line in lines if re.search(r"\berror\b|failed to|cannot ", line, re.IGNORECASE)
    ]
    return " | ".join((errors or [line.strip() for line in lines if line.strip()])[-2:])[-600:] or None
