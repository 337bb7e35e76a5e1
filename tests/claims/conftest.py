"""The installed verl, as text."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest


@cache
def verl() -> Path:
    spec = find_spec("verl")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


@cache
def sources() -> dict[str, str]:
    """Every source and configuration file of verl."""
    files = [path for suffix in ("py", "yaml") for path in verl().rglob(f"*.{suffix}")]
    assert len(files) > 300
    return {str(path.relative_to(verl())): path.read_text(encoding="utf-8") for path in files}


@pytest.fixture(name="verl")
def _verl() -> Path:
    return verl()


@pytest.fixture(name="sources")
def _sources() -> dict[str, str]:
    return sources()
