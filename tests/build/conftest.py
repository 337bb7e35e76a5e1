"""What the tests of this room share."""

from __future__ import annotations

import subprocess
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

MakeWheel = Callable[[Path, str, str], Path]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 3 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=3m", "none", folder], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("may not mount here")
    yield folder
    subprocess.run(["umount", folder], check=True)


@pytest.fixture
def make_wheel() -> MakeWheel:
    """Make a small wheel: folder, name, version."""
    return _wheel


def _wheel(folder: Path, name: str, version: str) -> Path:
    """A wheel with one module, the same bytes each time."""
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}/__init__.py": f"version = {version!r}\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in {**files, f"{info}/RECORD": record}.items():
            archive.writestr(zipfile.ZipInfo(file), text)
    return path
