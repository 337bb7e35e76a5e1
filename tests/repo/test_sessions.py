"""The sessions have the names that tools outside the repository rely on, and all tests are found."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).parents[2]
PLAIN = "acceptance|bench|compat|lint|lock|render|tests|tests-container|update"
NAME = re.compile(rf"(smoke|handoff|build|prove)-(cpu|mac|p40|a100)|{PLAIN}")
NEEDED = {"acceptance", "lint", "lock", "render", "smoke-cpu", "smoke-mac", "tests"}


def sessions() -> dict[str, str]:
    """Each session and its description; ``--json`` would list only those of a plain ``nox``."""
    command = [sys.executable, "-m", "nox", "-f", str(ROOT / "noxfile.py"), "--list-sessions", "--nocolor"]
    listed = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)
    found = re.findall(r"^[*-] (\S+)(?: -> (.*))?$", listed.stdout, re.MULTILINE)
    assert found, listed.stdout
    return dict(found)


def test_session_names_are_the_fixed_ones() -> None:
    names = set(sessions())
    assert {name for name in names if not NAME.fullmatch(name)} == set()
    assert names >= NEEDED


def test_each_session_says_what_it_is_for() -> None:
    assert {name for name, description in sessions().items() if not description} == set()


def test_pytest_passes_over_no_folder_of_tests_but_the_containers() -> None:
    """pytest's own norecursedirs holds "build" and "dist", and tests/build mirrors harness/build."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    folders = {path.parent for path in (ROOT / "tests").rglob("test_*.py")}
    names = {part for folder in folders for part in folder.relative_to(ROOT / "tests").parts}
    names |= {
        path.name for path in (ROOT / "harness").iterdir() if path.is_dir() and path.name[0] not in "._"
    }
    skipped = {name for name in names for pattern in settings["norecursedirs"] if fnmatch(name, pattern)}
    assert skipped <= {"container"}
