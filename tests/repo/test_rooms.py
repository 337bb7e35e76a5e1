"""Who may import whom: the rules hold for the package, and each of them is seen to fail when it is broken."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CONTRACTS = {
    contract["id"]: contract
    for contract in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
}
FORBIDDEN = {id_: contract for id_, contract in CONTRACTS.items() if contract["type"] == "forbidden"}

# The design's rules. A room that is not there yet is not in its contract yet (import-linter wants it to
# exist); as soon as it is, the test below asks for it.
SOURCES = {
    "host": {"build", "handoff"},
    "inside": {"adapt", "fingerprint", "ladder", "warm"},
    "files": {"diagnose", "evidence", "fingerprint"},
    "pure": {"console", "errors", "profiles"},
}


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A copy of the package that a test may spoil."""
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "harness", tmp_path / "harness", ignore=ignore)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def plant(root: Path, module: str, *imports: str) -> None:
    """Hide imports inside a function, where they are easiest to overlook."""
    place = root.joinpath(*module.split("."))
    file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    lines = [f"    import {name}\n" for name in imports]
    file.write_text(file.read_text() + "\n\ndef _planted() -> None:\n" + "".join(lines))


def check(root: Path, contract: str) -> tuple[int, str]:
    tool = Path(sysconfig.get_path("scripts")) / "lint-imports"
    command = [str(tool), "--no-logo", "--no-cache", "--contract", contract]
    wide = {**os.environ, "COLUMNS": "500"}
    done = subprocess.run(command, cwd=root, check=False, capture_output=True, text=True, env=wide)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("contract", CONTRACTS)
def test_the_package_keeps_each_contract(package: Path, contract: str) -> None:
    code, output = check(package, contract)
    assert code == 0, output


@pytest.mark.parametrize("contract", SOURCES)
def test_a_contract_holds_all_of_its_rooms(contract: str) -> None:
    there = {path.stem for path in (ROOT / "harness").iterdir()}
    assert set(FORBIDDEN[contract]["source_modules"]) == {
        f"harness.{room}" for room in SOURCES[contract] & there
    }


@pytest.mark.parametrize(
    ("contract", "module"),
    [(id_, module) for id_, contract in FORBIDDEN.items() for module in contract["source_modules"]],
)
def test_a_planted_heavy_import_is_found(package: Path, contract: str, module: str) -> None:
    heavy = FORBIDDEN[contract]["forbidden_modules"]
    plant(package, module, *heavy)
    code, output = check(package, contract)
    assert code == 1, output
    missed = [name for name in heavy if f"{module} is not allowed to import {name}:" not in output]
    assert not missed, output


@pytest.mark.parametrize("module", ["harness.profiles", "harness.console", "harness.errors"])
def test_the_lowest_rooms_may_import_none_of_the_rest(package: Path, module: str) -> None:
    rooms = [f"harness.{path.parent.name}" for path in sorted((package / "harness").glob("*/__init__.py"))]
    above = [room for room in rooms if room != "harness.profiles"]
    plant(package, module, *above)
    code, output = check(package, "rooms")
    assert code == 1, output
    missed = [room for room in above if f"{module} is not allowed to import {room}:" not in output]
    assert not missed, output


def test_no_room_may_import_the_command_line(package: Path) -> None:
    plant(package, "harness.evidence", "harness.cli")
    code, output = check(package, "rooms")
    assert code == 1, output
    assert "harness.evidence is not allowed to import harness.cli" in output


def test_a_new_room_must_be_given_its_place(package: Path) -> None:
    (package / "harness" / "attic.py").write_text("")
    code, output = check(package, "rooms")
    assert code == 1, output
    assert "attic" in output
