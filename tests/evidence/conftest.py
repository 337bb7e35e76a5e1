"""A real small disk, and Python children, for the tests of the evidence room."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Root needs no user namespace; an ordinary user does; a public runner has sudo without a password.
_WAYS = (["unshare", "-m"], ["unshare", "-Urm"], ["sudo", "-n", "unshare", "-m"])


def _command(code: str, *arguments: str | Path) -> list[str]:
    return [
        sys.executable,
        "-c",
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{code}",
        *map(str, arguments),
    ]


@pytest.fixture
def python() -> Callable[..., list[str]]:
    """Make the command of a Python child that sees the repository, from code and arguments."""
    return _command


@pytest.fixture(scope="session")
def _private_mounts() -> Sequence[str]:
    if sys.platform != "linux":
        pytest.skip("a small disk is made with Linux mount namespaces")
    for way in _WAYS:
        try:
            tried = subprocess.run(
                [*way, "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, check=False
            )
        except FileNotFoundError:
            continue
        if tried.returncode == 0:
            return way
    pytest.skip("this machine lets nobody mount a tmpfs in a namespace of its own: no full disk to test with")


@pytest.fixture
def on_small_disk(
    _private_mounts: Sequence[str], tmp_path: Path
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run Python code with ``disk``, a folder on a file system of its own with ``size`` of space.

    The mount lives in a namespace of the child's: whatever happens, nothing stays mounted.
    """

    def run(code: str, *, size: str = "512k") -> subprocess.CompletedProcess[str]:
        disk = tmp_path / "disk"
        disk.mkdir()
        mount = f'mount -t tmpfs -o size={size} none "$0" && exec "$@"'
        head = f"from pathlib import Path\ndisk = Path({str(disk)!r})\n"
        command = [*_private_mounts, "sh", "-c", mount, str(disk), *_command(head + code)]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    return run
