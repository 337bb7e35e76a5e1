"""The image's digest in a run record: written by the host, only where the image is the one that was built."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.build.image import witness
from harness.build.image.make import RECORD, place
from harness.errors import ImageError
from harness.evidence.model import Image, load
from harness.evidence.record import RunRecord
from harness.profiles import load as profile_named

MANIFEST, CONFIG = "sha256:" + "a" * 64, "sha256:" + "b" * 64


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The record of an image, in a ``dist/`` of its own."""
    profile = profile_named("cpu")
    monkeypatch.setattr("harness.build.image.make.root", lambda: tmp_path)
    path = place(profile) / RECORD
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"manifest": MANIFEST, "config": CONFIG, "archive": {"file": "image.tar"}}))
    return path


@pytest.mark.parametrize("engine_id", [MANIFEST, CONFIG])
def test_the_image_is_known_by_either_digest(built: Path, engine_id: str) -> None:
    assert witness.known(profile_named("cpu"), engine_id) == Image(manifest=MANIFEST, config=CONFIG)


def test_another_image_under_the_same_name_is_refused(built: Path) -> None:
    with pytest.raises(ImageError, match=r"is not the image that was built last") as caught:
        witness.known(profile_named("cpu"), "sha256:" + "c" * 64)
    assert "docker load --input" in str(caught.value)


def test_a_broken_record_is_said_and_a_missing_one_proves_nothing(built: Path) -> None:
    built.write_text("{")
    with pytest.raises(ImageError, match="cannot be read"):
        witness.known(profile_named("cpu"), MANIFEST)
    built.unlink()
    assert witness.known(profile_named("cpu"), MANIFEST) is None


def test_only_the_new_runs_get_the_digest(tmp_path: Path) -> None:
    old = RunRecord.create(tmp_path, profile="cpu", command=["verlock"])
    before = witness.records(tmp_path)
    new = RunRecord.create(tmp_path, profile="cpu", command=["verlock"])
    new.finish("passed", 0)
    witness.note(Image(manifest=MANIFEST, config=CONFIG), witness.records(tmp_path) - before)
    assert load(old.folder).image is None
    assert load(new.folder).image == Image(manifest=MANIFEST, config=CONFIG)
    assert load(new.folder).status == "passed"
