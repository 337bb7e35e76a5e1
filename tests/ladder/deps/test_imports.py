"""Imports are written down by each process as they happen, and sorted into rungs by the clock."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from harness.adapt.imports import VARIABLE
from harness.fingerprint.lock import pins
from harness.ladder.deps.command import START, by_rung, here
from harness.ladder.deps.graph import owners
from harness.profiles import load

CHILD = """
import colorsys
from harness.adapt import imports
imports.watch()
import os, json.decoder, wave
if os.fork() == 0:
    import chunk_of_nothing
"""


def watched(folder: Path, code: str) -> dict[int, set[str]]:
    environ = {**os.environ, VARIABLE: str(folder)}
    subprocess.run([sys.executable, "-c", code], env=environ, check=False, capture_output=True)
    return {
        int(file.stem): {line.split()[1] for line in file.read_text().splitlines()}
        for file in folder.glob("*.txt")
    }


def test_what_came_before_and_what_comes_after_is_written(tmp_path: Path) -> None:
    parent, child = sorted(watched(tmp_path, CHILD).values(), key=len, reverse=True)
    assert {"colorsys", "wave"} <= parent
    assert "chunk_of_nothing" in child - parent  # asked for, whether it is there or not
    assert "xmlrpc" not in parent


def test_nothing_is_written_unless_asked(tmp_path: Path) -> None:
    environ = {name: value for name, value in os.environ.items() if name != VARIABLE}
    subprocess.run([sys.executable, "-c", CHILD], env=environ, check=False, capture_output=True, cwd=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_module_belongs_to_the_rung_that_was_climbed_when_it_came(tmp_path: Path) -> None:
    events = [
        {"kind": "rung_started", "rung": "env", "time": "2026-11-30T12:00:10.000000Z"},
        {"kind": "other", "time": "2026-11-30T12:00:12.000000Z"},
        {"kind": "rung_started", "rung": "data", "time": "2026-11-30T12:00:20.000000Z"},
    ]
    start = 1796040000  # 2026-11-30T12:00:00Z
    (tmp_path / "1.txt").write_text(f"{start + 5}.0 typer\n{start + 11}.0 torch.nn\n{start + 30}.0 pyarrow\n")
    (tmp_path / "2.txt").write_text(f"{start + 20}.5 pandas\n")
    assert by_rung(events, tmp_path) == {START: {"typer"}, "env": {"torch.nn"}, "data": {"pyarrow", "pandas"}}


def test_the_environments_own_modules_are_found() -> None:
    installed = here(pins(load("cpu")))
    modules = {"torch.nn", "google.protobuf", "yaml", "ray", "attr", "tensordict", "hydra.core"}
    assert owners(installed, modules) == {
        "torch",
        "protobuf",
        "pyyaml",
        "ray",
        "attrs",
        "tensordict",
        "hydra-core",
    }
    assert installed["torch"].size > 100e6
