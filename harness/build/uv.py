"""Running uv, and turning what it says on failure into errors that say what to do."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from harness.errors import DiskFullError, LockError, ToolMissingError, VerlockError

# Settings of a person's shell that would change what is resolved or installed, not where from.
IGNORED = (
    "MACOSX_DEPLOYMENT_TARGET",
    "PYTHONHOME",
    "PYTHONPATH",
    "UV_BUILD_CONSTRAINT",
    "UV_CONSTRAINT",
    "UV_CUSTOM_COMPILE_COMMAND",
    "UV_EXCLUDE",
    "UV_EXCLUDE_NEWER",
    "UV_EXCLUDE_NEWER_PACKAGE",
    "UV_EXTRA_INDEX_URL",
    "UV_INDEX_STRATEGY",
    "UV_INDEX_URL",
    "UV_NO_BINARY",
    "UV_NO_BUILD",
    "UV_NO_BUILD_ISOLATION",
    "UV_OVERRIDE",
    "UV_PRERELEASE",
    "UV_PROJECT_ENVIRONMENT",
    "UV_PYTHON",
    "UV_REQUIRE_HASHES",
    "UV_RESOLUTION",
    "UV_SYSTEM_PYTHON",
    "UV_TORCH_BACKEND",
    "VIRTUAL_ENV",
)


@cache
def binary() -> Path:
    """The uv that the ``host`` extra brings, else the one on PATH."""
    try:
        from uv import find_uv_bin

        return Path(find_uv_bin())
    except (ImportError, FileNotFoundError):
        found = shutil.which("uv")
    if found is None:
        raise ToolMissingError(
            "uv is not installed",
            why="locks and environments are made with it",
            todo="pip install 'verlock[host]'",
        )
    return Path(found)


@cache
def version() -> str:
    """As in ``0.13.9``."""
    done = subprocess.run([binary(), "--version"], capture_output=True, text=True, check=False)
    found = re.search(r"\d+\.\d+\.\d+", done.stdout)
    if done.returncode != 0 or found is None:
        raise ToolMissingError(
            f"uv does not run: {binary()}",
            why=done.stderr.strip() or None,
            todo="pip install --force-reinstall uv",
        )
    return found[0]


def run(
    arguments: Sequence[str | Path], *, environment: Mapping[str, str], cwd: Path | None = None, doing: str
) -> str:
    """Run uv and return its standard output; ``doing`` is how an error names the step.

    Raises:
        LockError: packages that cannot be found, resolved, fetched, built, or whose hash is wrong.
        DiskFullError: no space left.
        ToolMissingError: no Python to make an environment with.
    """
    inherited = {name: value for name, value in os.environ.items() if name not in IGNORED}
    command = [str(binary()), *map(str, arguments), "--no-progress"]
    quiet = {"NO_COLOR": "1", "UV_NO_PROGRESS": "1"}
    done = subprocess.run(
        command,
        cwd=cwd,
        env=inherited | quiet | dict(environment),
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode != 0:
        raise explain(done.stderr, doing=doing)
    return done.stdout


def explain(stderr: str, *, doing: str) -> VerlockError:
    """The error that uv's standard error stands for. Pure; the wordings are those of uv 0.13."""
    text = re.sub(r"\n\s+", " ", stderr)
    if "No space left on device" in stderr or "os error 28" in stderr:
        return DiskFullError(
            f"{doing}: no space left on the disk", todo="free some space, then run the same command again"
        )
    if mismatch := re.search(r"Hash mismatch for `([^`]+)`", stderr):
        computed = re.search(r"Computed:\s+(\S+)", stderr)
        return LockError(
            f"{doing}: {mismatch[1]} is not the file that the lock names",
            why="either the lock was altered, or the index offers another file under the same name"
            + (f"; the file has {computed[1]}" if computed else ""),
            todo="compare with `git diff docker/rendered`, then try `verlock lock --check`",
        )
    if re.search(
        r"error sending request|[Cc]ould not connect|dns error|Failed to fetch|Request failed after", stderr
    ):
        address = re.search(r"https?://[^\s`)]+", stderr)
        return LockError(
            f"{doing}: no answer from {_without_secrets(address[0]) if address else 'the package index'}",
            why=_last_cause(stderr),
            todo="check the network; PIP_INDEX_URL sets a mirror, PIP_FIND_LINKS a folder of wheels",
        )
    if re.search(
        r"No interpreter found|No virtual environment found|failed to download.*python", text, re.IGNORECASE
    ):
        return ToolMissingError(
            f"{doing}: no suitable Python",
            why=_last_cause(stderr),
            todo="install the Python that the profile names",
        )
    if "require-hashes" in stderr or "`--require-hashes`" in stderr:
        return LockError(
            f"{doing}: a line of the lock has no hash",
            why=_last_cause(stderr),
            todo="make the lock again: `verlock lock`",
        )
    return LockError(
        f"{doing}: uv could not do it", why=_without_secrets(" ".join(stderr.split()))[-1500:] or None
    )


def _last_cause(stderr: str) -> str | None:
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    causes = [line for line in lines if line.lower().startswith(("cause", "caused", "error"))]
    return _without_secrets((causes or lines or [""])[-1]) or None


def _without_secrets(text: str) -> str:
    """An index address may hold a password."""
    return re.sub(r"://[^/@\s]+@", "://***@", text)
