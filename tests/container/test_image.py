"""The cpu image: built, named as its record says, and trained in under the cluster's conditions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.build.engine import Engine
from harness.build.image.archive import sha256
from harness.build.image.make import ARCHIVE, RECORD, build, place
from harness.build.image.run import run
from harness.console import Output
from harness.errors import ImageError
from harness.profiles import load

QUIET = Output(as_json=True)


@pytest.fixture(scope="module")
def home(engine: Engine) -> Path:
    """The folder of the built image."""
    build("cpu", update_base=False, base_only=False, no_cache=False, output=QUIET)
    return place(load("cpu"))


def test_the_record_says_what_the_archive_is(home: Path) -> None:
    record = json.loads((home / RECORD).read_text())
    assert record["archive"]["sha256"] == sha256(home / ARCHIVE)
    assert record["archive"]["bytes"] == (home / ARCHIVE).stat().st_size
    assert [path.name for path in home.iterdir() if path.name.startswith(".")] == []


def test_the_climb_to_ppo_without_root_network_or_a_writable_root(
    home: Path, engine: Engine, tmp_path: Path
) -> None:
    command = ["climb", "--profile", "cpu", "--to", "ppo", "--runs", "/runs"]
    ended = run(load("cpu"), command, tmp_path / "runs", engine=engine, gpus=False, output=QUIET)
    record = json.loads((tmp_path / "runs" / "latest" / "run.json").read_text())
    assert (ended.exit_code, ended.out_of_memory) == (0, False)
    assert record["status"] == "passed"
    assert record["rungs"][-1]["name"] == "ppo"


def test_a_failure_inside_keeps_its_exit_code(home: Path, engine: Engine, tmp_path: Path) -> None:
    command = ["climb", "--profile", "cpu", "--to", "nowhere", "--runs", "/runs"]
    assert run(load("cpu"), command, tmp_path, engine=engine, gpus=False, output=QUIET).exit_code == 21


def test_an_image_that_is_not_built_says_how_to_build_it(engine: Engine, tmp_path: Path) -> None:
    profile = load("cpu").model_copy(update={"name": "nothere", "short": "nothere"})
    with pytest.raises(ImageError, match="nox -s build-nothere"):
        run(profile, [], tmp_path, engine=engine, gpus=False, output=QUIET)
