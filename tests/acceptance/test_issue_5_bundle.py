"""Issue 5, the bundle: of the cpu image and of a100's, signed by cosign; each planted change is found."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.handoff.verify import check
from harness.profiles import root

pytestmark = pytest.mark.acceptance

Record = Callable[[str, object], None]


def ended(*command: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **variables}
    words = list(map(str, command))
    return subprocess.run(words, env=environment, cwd=root(), capture_output=True, text=True, check=False)


def verlock(*words: str, **variables: str) -> dict[str, Any]:
    done = ended(sys.executable, "-m", "harness", *words, "--json", **variables)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return dict(json.loads(done.stdout))


@pytest.fixture(scope="module")
def cosign(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A key pair of cosign's own, and the program."""
    done = ended(root() / ".ci" / "cosign")
    assert done.returncode == 0, done.stderr
    home = tmp_path_factory.mktemp("keys")
    variables = {"VERLOCK_COSIGN": done.stdout.strip(), "COSIGN_PASSWORD": "a password"}
    for name in ("ours", "theirs"):
        prefix = f"--output-key-prefix={home / name}"
        made = ended(variables["VERLOCK_COSIGN"], "generate-key-pair", prefix, **variables)
        assert made.returncode == 0, made.stderr
    return {**variables, "HOME_OF_KEYS": str(home)}


@pytest.fixture(scope="module")
def signed(
    engine: dict[str, str], cosign: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Path]:
    """A signed bundle of the cpu image, made in a climb's proof, and the folder of the keys."""
    keys = Path(cosign["HOME_OF_KEYS"])
    verlock("build", "cpu", **engine)
    runs = tmp_path_factory.mktemp("runs")
    verlock("climb", "--image", "--runs", str(runs), **engine)
    made = verlock("handoff", "cpu", "--runs", str(runs), "--sign", str(keys / "ours.key"), **cosign)
    return Path(made["bundle"]), keys


@pytest.fixture
def copy(signed: tuple[Path, Path], tmp_path: Path) -> Path:
    """The bundle again: its big file is copied only by those who change it."""
    target = tmp_path / "bundle"
    shutil.copytree(signed[0], target, copy_function=os.link)
    return target


def own(path: Path) -> Path:
    """Make a file that is shared with the bundle one's own."""
    shutil.copyfile(path, path.with_suffix(".own"))
    path.with_suffix(".own").replace(path)
    return path


def flip(path: Path, offset: int) -> None:
    with own(path).open("r+b") as file:
        file.seek(offset, os.SEEK_SET if offset >= 0 else os.SEEK_END)
        byte = file.read(1)[0] ^ 1
        file.seek(offset, os.SEEK_SET if offset >= 0 else os.SEEK_END)
        file.write(bytes([byte]))


def append(path: Path) -> None:
    with own(path).open("a") as file:
        file.write("\n")


PLANTED: dict[str, tuple[Callable[[Path], object], str]] = {
    "a byte in the middle of the archive": (
        lambda f: flip(f / "image.tar", (f / "image.tar").stat().st_size // 2),
        "image.tar: changed",
    ),
    "a byte of a job file": (
        lambda f: append(f / "jobs/slurm-docker.sbatch"),
        "slurm-docker.sbatch: changed",
    ),
    "a byte of the SBOM": (lambda f: flip(f / "sbom.cdx.json", 5000), "sbom.cdx.json: changed"),
    "a missing file": (lambda f: (f / "run.json").unlink(), "run.json: missing"),
    "an extra file": (lambda f: (f / "more").write_text(""), "more: not listed"),
    "other sums under the signature": (lambda f: append(f / "SHA256SUMS"), "SHA256SUMS.sig: wrong"),
}


def test_the_signed_bundle_is_what_it_says(signed: tuple[Path, Path], record_property: Record) -> None:
    folder, keys = signed
    assert check(folder, key=keys / "ours.pub") == []
    # cosign agrees with our own arithmetic, and so it does about the wrong key.
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["proof"]["status"] == "proven"
    alone = ended(sys.executable, "-I", "-S", folder / "verify.py", "--digest", manifest["image"]["manifest"])
    assert (alone.returncode, alone.stdout.split(":")[0]) == (0, "verified")
    record_property("bytes", manifest["image"]["archive"]["bytes"])
    record_property("digest", manifest["image"]["manifest"])
    record_property("proof", manifest["proof"]["statement"])


def test_another_key_did_not_sign_it(signed: tuple[Path, Path], cosign: dict[str, str]) -> None:
    folder, keys = signed
    found = check(folder, key=keys / "theirs.pub")
    assert found == ["SHA256SUMS.sig: wrong: SHA256SUMS was not signed with theirs.pub"]
    asked = ["verify-blob", "--insecure-ignore-tlog", "--signature", folder / "SHA256SUMS.sig"]
    for name, code in (("ours", True), ("theirs", False)):
        done = ended(
            cosign["VERLOCK_COSIGN"], *asked, "--key", keys / f"{name}.pub", folder / "SHA256SUMS", **cosign
        )
        assert (done.returncode == 0) is code, done.stderr


@pytest.mark.parametrize("name", PLANTED)
def test_each_planted_change_is_found(copy: Path, name: str, record_property: Record) -> None:
    plant, expected = PLANTED[name]
    plant(copy)
    done = ended(sys.executable, "-m", "harness", "handoff", "verify", str(copy))
    assert done.returncode == 36
    assert expected in done.stderr
    alone = ended(sys.executable, "-I", "-S", copy / "verify.py")
    assert (alone.returncode, expected in alone.stdout) == (36, True)
    record_property("found", done.stderr[:500])


def test_a100s_image_is_bundled_with_the_rehearsal_of_its_digest(
    image: Callable[[str], dict[str, Any]], engine: dict[str, str], tmp_path: Path, record_property: Record
) -> None:
    """The session's own command, on the image that `nox -s build-a100` made, or the proofs of issue 3."""
    image("a100")
    verlock("climb", "--profile", "a100", "--rehearse", "--image", "--runs", str(tmp_path), **engine)
    nox = Path(sys.executable).with_name("nox")
    done = ended(nox, "-s", "handoff-a100", "--", "--runs", str(tmp_path), "--nodes", "2")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    manifest = json.loads((root() / "dist" / "a100" / "handoff" / "manifest.json").read_text())
    record = json.loads((root() / "dist" / "a100" / "handoff" / "run.json").read_text())
    assert manifest["proof"]["status"] == "proven"
    assert record["image"]["manifest"] == manifest["image"]["manifest"]
    assert any("vllm on the target, hf in the run" in text for text in manifest["proof"]["not_verified"])
    record_property("digest", manifest["image"]["manifest"])
    record_property("rungs", [f"{r['name']}: {r['status']}" for r in manifest["proof"]["rungs"]])
    record_property("not_verified", manifest["proof"]["not_verified"])
