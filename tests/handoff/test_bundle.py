"""The bundle: made only of what was proven, whole or not at all, and the same bytes each time."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.console import Output
from harness.errors import EnvironmentDiffersError, HandoffError, OverrideError, ToolMissingError
from harness.evidence.model import Image, Rung
from harness.handoff import verify
from harness.handoff.bundle import Order, bundle
from harness.handoff.manifest import Manifest
from harness.handoff.parameters import Asked

QUIET = Output(as_json=True)


def make(**order: Any) -> tuple[Path, Manifest]:
    return bundle("cpu", Order(**order), QUIET)


def test_the_bundle_of_a_proven_image(place: Any) -> None:
    folder, manifest = make()
    assert folder == place.bundle
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    jobs = [f"jobs/{n}.sh" for n in ("docker-run", "ray-submit")] + ["jobs/rayjob.yaml"]
    jobs += [f"jobs/slurm-{n}.sbatch" for n in ("apptainer", "docker", "pyxis")]
    assert names == sorted(
        [*jobs, "SHA256SUMS", "image.tar", "manifest.json", "run.json", "sbom.cdx.json", "verify.py"]
    )
    assert Manifest.model_validate_json((folder / "manifest.json").read_bytes()) == manifest
    assert manifest.image.manifest == place.manifest
    assert manifest.versions["verl"] == "0.9.1"
    assert manifest.versions["ray"] == "2.59.0"
    assert manifest.patches == {"engine-seed": "applied"}
    assert manifest.proof.status == "proven"
    assert [rung.name for rung in manifest.proof.rungs] == ["env", "ppo"]
    assert "env: as locked" in manifest.proof.verified
    assert json.loads((folder / "run.json").read_text())["id"] == manifest.proof.run


def test_what_was_not_verified_is_said(place: Any) -> None:
    manifest = make()[1]
    said = "\n".join(manifest.proof.not_verified)
    for text in (
        "rung forward: it was not climbed",
        "reward: it was mocked",
        "model: the run took the tiny one",
        "trainer.nnodes: 1 on the target, 2 in the run",
    ):
        assert text in said
    assert "trainer.device" not in said


REFUSED: dict[str, tuple[dict[str, object], str]] = {
    "another image": (
        {"image": Image(manifest="sha256:" + "b" * 64, config="sha256:" + "c" * 64)},
        "ran in another image",
    ),
    "no image": ({"image": None}, "ran in no image"),
    "another fingerprint": ({"fingerprint": {"image": "sha256:" + "9" * 64}}, "says the fingerprint"),
    "a failed run": ({"status": "failed"}, "is failed, not passed"),
    "a run that was cut off": ({"status": "interrupted"}, "is interrupted, not passed"),
    "a climb that ended low": ({"rungs": [Rung(name="env", status="passed")]}, "did not climb to ppo"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_an_image_without_a_run_of_its_own_is_refused(place: Any, name: str) -> None:
    changes, why = REFUSED[name]
    place.prove(**changes)
    with pytest.raises(HandoffError, match="proves the image") as caught:
        make()
    assert why in str(caught.value)
    assert caught.value.exit_code == 35
    assert not place.bundle.exists()


def test_unproven_is_said_everywhere(place: Any) -> None:
    place.prove(status="failed")
    folder, manifest = make(unproven=True)
    assert (manifest.proof.status, manifest.proof.run, manifest.proof.record) == ("unproven", None, None)
    assert "is failed, not passed" in manifest.proof.not_verified[0]
    for name in manifest.jobs:
        assert "UNPROVEN" in (folder / name).read_text()
    assert not (folder / "run.json").exists()
    assert verify.check(folder) == []


def test_unproven_does_not_hide_a_proof(place: Any) -> None:
    assert make(unproven=True)[1].proof.status == "proven"


def test_the_same_image_gives_the_same_bytes(place: Any) -> None:
    first = (make()[0] / "SHA256SUMS").read_text()
    assert (make()[0] / "SHA256SUMS").read_text() == first
    assert sorted(path.name for path in place.home.iterdir()) == ["handoff", "image.json", "image.tar"]


def test_the_sbom_names_all_that_is_in_the_image(bundled: Any) -> None:
    document = json.loads((bundled.bundle / "sbom.cdx.json").read_text())
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.6")
    found = {component["purl"]: component for component in document["components"]}
    assert len(found) == 7
    assert found["pkg:pypi/torch@2.13.0%2Bcpu"]["licenses"] == [{"expression": "BSD-3-Clause"}]
    assert found["pkg:pypi/tensordict@0.10.0"]["licenses"] == [{"license": {"name": "not SPDX at all!"}}]
    assert "licenses" not in found["pkg:pypi/verl@0.9.1"]
    python = found["pkg:deb/debian/python3@3.11.2-1%2Bb1?arch=amd64&distro=bookworm"]
    assert python["hashes"] == [{"alg": "SHA-256", "content": "1" * 64}]
    assert document["metadata"]["component"]["version"] == bundled.manifest


def test_the_sbom_is_valid_by_cyclonedx_own_rules(bundled: Any) -> None:
    from cyclonedx.model.bom import Bom

    bom = Bom.from_json(json.loads((bundled.bundle / "sbom.cdx.json").read_text()))
    assert bom.validate()
    assert len(bom.components) == 7


CONTENTS: dict[str, tuple[dict[str, Any], str]] = {
    "another version": (
        {"distributions": {"ray": ("2.0.0", "")}},
        "ray: 2.0.0 in the archive, 2.59.0 in the lock",
    ),
    "one too many": ({"distributions": {"left-pad": ("1.0", "")}}, "left-pad: 1.0 in the archive, none in"),
    "a Debian package": (
        {"packages": {"python3": "9"}},
        "python3: 9 in the archive, 3.11.2-1+b1 in the lock",
    ),
}


@pytest.mark.parametrize("name", CONTENTS)
def test_an_archive_that_is_not_what_is_locked_is_refused(small: Callable[..., Any], name: str) -> None:
    given, message = CONTENTS[name]
    known = {
        "distributions": small.__kwdefaults__["distributions"],
        "packages": small.__kwdefaults__["packages"],
    }
    place = small(**{key: {**known[key], **value} for key, value in given.items()})
    place.prove()
    with pytest.raises(HandoffError) as caught:
        make()
    assert message in str(caught.value)


def test_an_image_that_was_not_built_says_how(place: Any) -> None:
    (place.home / "image.json").unlink()
    with pytest.raises(HandoffError, match="nox -s build-cpu"):
        make()


@pytest.mark.parametrize("plant", ["{", "{}"])
def test_a_record_that_cannot_be_read_is_said(place: Any, plant: str) -> None:
    (place.home / "image.json").write_text(plant)
    with pytest.raises(HandoffError, match="its record cannot be read"):
        make()


def test_an_image_of_another_profile_than_the_job_files_is_refused(place: Any) -> None:
    profile = place.root / "profiles" / "cpu.yaml"
    profile.write_text(profile.read_text() + "\n# changed since the image was built\n")
    with pytest.raises(EnvironmentDiffersError, match="profiles is not what the image of cpu was built from"):
        make(unproven=True)


def test_a_changed_archive_is_refused(place: Any) -> None:
    with (place.home / "image.tar").open("r+b") as file:
        file.write(b"x")
    with pytest.raises(HandoffError, match="not the one that was built"):
        make()


def test_a_failure_keeps_the_last_bundle(bundled: Any) -> None:
    before = (bundled.bundle / "SHA256SUMS").read_text()
    bundled.prove(status="failed")
    with pytest.raises(HandoffError):
        make()
    assert (bundled.bundle / "SHA256SUMS").read_text() == before
    assert verify.check(bundled.bundle) == []


def test_the_archive_is_not_copied_and_a_rebuild_does_not_change_it(bundled: Any) -> None:
    assert (bundled.bundle / "image.tar").samefile(bundled.home / "image.tar")
    (bundled.home / "new.tar").write_bytes(b"another build")
    (bundled.home / "new.tar").replace(bundled.home / "image.tar")
    assert verify.check(bundled.bundle) == []


def test_a_tag_instead_of_a_repository_is_refused(place: Any) -> None:
    with pytest.raises(HandoffError, match="has a tag"):
        make(repository="registry.example/verlock:latest")


@pytest.mark.parametrize(
    ("order", "tool"),
    [
        ({"repository": "registry.example/verlock", "push": True}, "skopeo"),
        ({"key": Path("cosign.key")}, "cosign"),
    ],
)
def test_a_tool_that_is_missing_is_named(
    place: Any, monkeypatch: pytest.MonkeyPatch, order: dict[str, Any], tool: str
) -> None:
    monkeypatch.setenv("PATH", os.devnull)
    with pytest.raises(ToolMissingError, match=tool):
        make(**order)
    assert not place.bundle.exists()


def test_files_of_the_user_in_the_last_bundle_are_kept(bundled: Any) -> None:
    """A job that was started there wrote its runs there."""
    (bundled.bundle / "runs").mkdir()
    (bundled.bundle / "runs" / "checkpoint").write_text("mine")
    job = bundled.bundle / "jobs" / "docker-run.sh"
    job.write_text(job.read_text() + "# mine\n")
    make()
    (kept,) = bundled.home.glob("handoff.*")
    assert (kept / "runs" / "checkpoint").read_text() == "mine"
    assert (kept / "jobs" / "docker-run.sh").read_text().endswith("# mine\n")
    assert verify.check(bundled.bundle) == []


def test_slips_are_told_before_the_archive_is_read(place: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.handoff.bundle._whole", lambda *_: pytest.fail("the archive was read"))
    with pytest.raises(OverrideError, match="is no time"):
        make(asked=Asked(time_limit="soon"))
    with pytest.raises(HandoffError, match="names no registry"):
        make(repository="verlock", push=True)
    monkeypatch.setenv("VERLOCK_COSIGN", str(place.home / "nowhere"))
    with pytest.raises(ToolMissingError, match="cosign"):
        make(key=place.home / "key")


def test_an_override_is_judged_by_the_configuration_of_the_proof(place: Any) -> None:
    (run,) = (path.parent for path in (place.root / "runs").glob("*/run.json"))
    (run / "config.yaml").write_text("trainer: {total_epochs: 3}\n")
    with pytest.raises(OverrideError, match=r"did you mean trainer\.total_epochs"):
        make(asked=Asked(overrides=("trainer.total_epoch=4",)))
    folder, _ = make(asked=Asked(overrides=("trainer.total_epochs=4",)))
    assert "trainer.total_epochs=4" in (folder / "jobs" / "docker-run.sh").read_text()
