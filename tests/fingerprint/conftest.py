"""A site-packages in miniature: distributions with code, a library and RECORD, as installers leave them."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

Make = Callable[..., Path]


def row(path: str, content: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"{path},sha256={digest},{len(content)}\n"


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Install NAME VERSION with these files; returns site-packages."""

    def made(name: str, version: str = "1.0", files: dict[str, bytes] | None = None) -> Path:
        site = tmp_path / "site"
        info = f"{name}-{version}.dist-info"
        content = files if files is not None else {f"{name}/__init__.py": b"x = 1\n"}
        content = content | {f"{info}/METADATA": f"Name: {name}\nVersion: {version}\n".encode()}
        for path, data in content.items():
            (site / path).parent.mkdir(parents=True, exist_ok=True)
            (site / path).write_bytes(data)
        rows = "".join(row(path, data) for path, data in content.items())
        (site / info / "RECORD").write_text(f"{rows}{info}/RECORD,,\n{name}/__pycache__/x.pyc,,\n")
        return site

    return made
