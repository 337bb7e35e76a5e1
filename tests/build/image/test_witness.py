"""The image's digest in a run record: written by the host, into the records of that container alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.build.image import witness
from harness.build.image.built import Built
from harness.evidence.model import Image, load
from harness.evidence.record import RunRecord
from harness.profiles import load as profile_named

BUILT = Built(
    profile=profile_named("cpu"),
    archive=Path("image.tar"),
    manifest="sha256:" + "a" * 64,
    config="sha256:" + "b" * 64,
    fingerprint="sha256:" + "c" * 64,
    parts={},
    revision="",
)


def recorded(runs: Path, monkeypatch: pytest.MonkeyPatch, *, pid: int, profile: str = "cpu") -> RunRecord:
    """A run that ended well, as the process ``pid`` leaves it."""
    with monkeypatch.context() as patched:
        patched.setattr("os.getpid", lambda: pid)
        record = RunRecord.create(runs, profile=profile, command=["verlock"])
    record.update(fingerprint={"environment": "e"})
    record.finish("passed", 0)
    return record


def test_the_container_s_run_gets_the_digest_and_the_second_layer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = recorded(tmp_path, monkeypatch, pid=1)
    before = witness.records(tmp_path)
    new = recorded(tmp_path, monkeypatch, pid=1)
    witness.note(BUILT, witness.records(tmp_path) - before)
    assert load(old.folder).image is None
    run = load(new.folder)
    assert run.image == Image(manifest=BUILT.manifest, config=BUILT.config)
    assert run.fingerprint == {"environment": "e", "image": BUILT.fingerprint}
    assert run.status == "passed"


@pytest.mark.parametrize(("pid", "profile"), [(4711, "cpu"), (1, "a100")])
def test_a_run_beside_the_container_proves_no_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pid: int, profile: str
) -> None:
    other = recorded(tmp_path, monkeypatch, pid=pid, profile=profile)
    witness.note(BUILT, witness.records(tmp_path))
    assert load(other.folder).image is None
