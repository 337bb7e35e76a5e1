"""The text of locks: reading, sealing, and what must not be in them."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.build import base_lock, lockfile
from harness.build.lock import folder
from harness.errors import LockError
from harness.profiles import load, names

COMMITTED = sorted(path for name in names() for path in folder(load(name)).glob("*.lock"))
# base.lock holds Debian packages, in a form of its own.
BASES = [path for path in COMMITTED if path.name == "base.lock"]
LOCKS = [path for path in COMMITTED if path.name != "base.lock"]
HASH = "0" * 64
GOOD = f"a==1 \\\n    --hash=sha256:{HASH}\n    # via b\nb==2+cpu \\\n    --hash=sha256:{HASH}\n"


def test_parse() -> None:
    pins = lockfile.parse("# head\n" + GOOD, file="x")
    assert [(pin.name, pin.version, pin.public_version, pin.line) for pin in pins.values()] == [
        ("a", "1", "1", 2),
        ("b", "2+cpu", "2", 5),
    ]
    assert "".join(pin.text for pin in pins.values()) == GOOD


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a==1\n", "x:1:a: a: a hash is missing"),
        (f"a==1 \\\n    --hash=sha256:{HASH[1:]}\n", "not 64 hexadecimal digits"),
        (f"a>=1 \\\n    --hash=sha256:{HASH}\n", "not a locked package"),
        (GOOD + GOOD, "locked twice"),
        ("-e .\n", "x:1: not a locked package"),
    ],
)
def test_refused(text: str, message: str) -> None:
    with pytest.raises(LockError, match=message):
        lockfile.parse(text, file="x")


@given(st.text())
def test_random_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(LockError):
        lockfile.parse(text, file="x")


@pytest.mark.parametrize(
    "line",
    [
        "--index-url https://example.org/simple",
        "--find-links wheels",
        "    # via -r /home/me/requirements.in",
        "    # via -r ../requirements.in",
        "torch @ file:///wheels/torch.whl",
        "-e ./here",
    ],
)
def test_leaks(line: str) -> None:
    assert [problem.where for problem in lockfile.leaks(GOOD + line + "\n", file="x")] == ["x:6"]


def test_seal() -> None:
    text = lockfile.sealed(GOOD, head=["made by a test"])
    lockfile.check_seal(text, file="x")
    with pytest.raises(LockError, match="altered"):
        lockfile.check_seal(text.replace("2+cpu", "3+cpu"), file="x")
    with pytest.raises(LockError, match="altered"):
        lockfile.check_seal(GOOD, file="x")


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_committed_locks_are_sealed_hashed_and_anonymous(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    lockfile.check_seal(text, file=path.name)
    assert lockfile.parse(text, file=path.name)
    assert lockfile.leaks(text, file=path.name) == []


@pytest.mark.parametrize("path", BASES, ids=lambda path: path.parent.name)
def test_committed_bases_are_sealed_and_anonymous(path: Path) -> None:
    assert len(base_lock.read(path)) > 50
    assert "://" not in path.read_text(encoding="utf-8")
