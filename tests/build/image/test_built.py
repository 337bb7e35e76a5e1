"""The image that is run is the one that the record names, made from what the checkout holds now."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from harness.build.image import built
from harness.build.image.make import RECORD, place
from harness.build.lock import folder
from harness.errors import EnvironmentDiffersError, ImageError
from harness.profiles import load, root


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout of its own, with the record of an image that was built from it."""
    for part in ("profiles", "docker", "harness"):
        shutil.copytree(root() / part, tmp_path / part, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setenv("VERLOCK_ROOT", str(tmp_path))
    record = {
        "manifest": "sha256:a",
        "config": "sha256:b",
        "fingerprint": "sha256:c",
        "parts": built.expected(load("cpu")),
        "revision": "0123456789abcdef",
    }
    path = place(load("cpu")) / RECORD
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(record))
    return tmp_path


def test_an_unchanged_checkout_is_what_the_image_was_built_from(checkout: Path) -> None:
    found = built.read(load("cpu"))
    assert (found.manifest, found.config) == ("sha256:a", "sha256:b")
    built.check(found)


@pytest.mark.parametrize(
    ("file", "where"),
    [
        ("docker/rendered/cpu/requirements.lock", "docker/rendered/cpu/requirements.lock"),
        ("docker/rendered/cpu/base.lock", "docker/rendered/cpu/base.lock"),
        ("docker/rendered/cpu/Dockerfile", "docker/rendered/cpu/Dockerfile"),
        ("profiles/cpu.yaml", "profiles/"),
        ("harness/ladder/climb.py", "harness/"),
    ],
)
def test_one_byte_more_is_refused_and_named(checkout: Path, file: str, where: str) -> None:
    path = checkout / file
    path.write_text(path.read_text() + "\n")
    with pytest.raises(EnvironmentDiffersError) as caught:
        built.check(built.read(load("cpu")))
    assert [problem.where for problem in caught.value.problems] == [where]
    assert caught.match("nox -s build-cpu")
    assert caught.match("commit 0123456789ab")


@pytest.mark.parametrize("file", ["harness/build/lock.py", "docker/rendered/a100/requirements.lock"])
def test_what_does_not_go_inside_does_not_count(checkout: Path, file: str) -> None:
    path = checkout / file
    path.write_text(path.read_text() + "\n")
    built.check(built.read(load("cpu")))


def test_a_missing_or_damaged_record_says_how_to_build(checkout: Path) -> None:
    path = place(load("cpu")) / RECORD
    path.write_text('{"manifest": ')
    with pytest.raises(ImageError, match="cannot be read"):
        built.read(load("cpu"))
    path.unlink()
    with pytest.raises(ImageError, match="nox -s build-cpu"):
        built.read(load("cpu"))


def test_the_expected_parts_are_those_of_a_build(checkout: Path, tmp_path: Path) -> None:
    from harness.build.image.context import stage
    from harness.build.sources import Sources

    made = stage(load("cpu"), tmp_path / "c", base="sha256:1", where_from=Sources())
    assert made.parts == built.expected(load("cpu")) | {"base": "sha256:1"}
    assert folder(load("cpu")).is_relative_to(checkout)
