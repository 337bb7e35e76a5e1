"""The receiver's check: it passes on a bundle as it was made, and finds whatever is planted in one."""

from __future__ import annotations

import ast
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.handoff import p256, standalone, verify
from harness.handoff.verify import check, trust

# Made once by cosign 2.5 (generate-key-pair, sign-blob) over the bytes "hi\n"; the private key is gone.
PUBLIC = """-----BEGIN PUBLIC KEY-----
MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEOohfGqsKwoWGTCBTP2Wef50/K/TQ
dSzDgGns9b3kkJH9VCTKkoloDvxMXrCAJOrXhlKCTTQm7t97MojV/rVCHg==
-----END PUBLIC KEY-----
"""
SIGNATURE = "MEYCIQDXNNuDbd59rIfJgb24xiI+P+xHYQc1zPwXEnCwvWTaZQIhAPVlN+S4A57YBGkeyKwyhRJRN2tLxxb7ntD5IguGt5c9"


def flip(path: Path, offset: int = -2000) -> None:
    data = bytearray(path.read_bytes())
    data[offset % len(data)] ^= 1
    path.write_bytes(data)


def resum(folder: Path) -> None:
    """What a forger does after a change: new sums for all that is there."""
    names = sorted(line[66:] for line in (folder / "SHA256SUMS").read_text().splitlines())
    there = [name for name in names if (folder / name).is_file()]
    lines = [f"{hashlib.sha256((folder / name).read_bytes()).hexdigest()}  {name}\n" for name in there]
    (folder / "SHA256SUMS").write_text("".join(lines))


def edited(folder: Path, name: str, change: Callable[[Any], None]) -> None:
    document = json.loads((folder / name).read_text())
    change(document)
    (folder / name).write_text(json.dumps(document))


def appended(folder: Path, name: str, text: str) -> None:
    with (folder / name).open("a") as file:
        file.write(text)


def test_a_bundle_as_it_was_made_has_no_finding(bundled: Any) -> None:
    assert check(bundled.bundle) == []
    assert check(bundled.bundle, digest=bundled.manifest) == []
    assert verify.locate(bundled.home) == bundled.bundle
    assert "give --digest" in verify.trust(bundled.bundle, digest=None, key=None)


def test_sha256sum_reads_the_sums_too(bundled: Any) -> None:
    command = ["sha256sum", "--check", "--strict", "SHA256SUMS"]
    done = subprocess.run(command, cwd=bundled.bundle, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def piped(path: Path) -> None:
    """Whoever opens it to read waits for a writer, for ever."""
    path.unlink()
    os.mkfifo(path)


def foldered(path: Path) -> None:
    path.unlink()
    path.mkdir()


CHANGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "a byte of the archive": (lambda f: flip(f / "image.tar"), "image.tar: changed"),
    "a byte of a job file": (lambda f: flip(f / "jobs" / "rayjob.yaml", 900), "jobs/rayjob.yaml: changed"),
    "a byte of the SBOM": (lambda f: flip(f / "sbom.cdx.json", 99), "sbom.cdx.json: changed"),
    "a byte of the manifest": (lambda f: flip(f / "manifest.json", 30), "manifest.json: changed"),
    "a byte of the run record": (lambda f: flip(f / "run.json", 30), "run.json: changed"),
    "a byte of the check itself": (lambda f: flip(f / "verify.py", 99), "verify.py: changed"),
    "a missing job file": (lambda f: (f / "jobs/docker-run.sh").unlink(), "jobs/docker-run.sh: missing"),
    "a missing archive": (lambda f: (f / "image.tar").unlink(), "image.tar: missing"),
    "a missing manifest": (lambda f: (f / "manifest.json").unlink(), "manifest.json: missing"),
    "no sums": (lambda f: (f / "SHA256SUMS").unlink(), "is no bundle, it has no SHA256SUMS"),
    "an extra file": (lambda f: (f / "jobs" / "more.sh").write_text(""), "jobs/more.sh: not listed"),
    "a link": (lambda f: (f / "link").symlink_to("image.tar"), "link: a link or a special file"),
    "a pipe for the manifest": (lambda f: piped(f / "manifest.json"), "manifest.json: a link or a special"),
    "a pipe for the SBOM": (lambda f: piped(f / "sbom.cdx.json"), "sbom.cdx.json: is no plain file"),
    "a pipe for a job file": (lambda f: piped(f / "jobs/rayjob.yaml"), "jobs/rayjob.yaml: is no plain file"),
    "a pipe for the sums": (lambda f: piped(f / "SHA256SUMS"), "SHA256SUMS: is no plain file"),
    "a folder for the archive": (lambda f: foldered(f / "image.tar"), "image.tar: is no plain file"),
    "a line of the sums": (lambda f: appended(f, "SHA256SUMS", "what\n"), "not a line of it"),
    "a path out of the bundle": (
        lambda f: appended(f, "SHA256SUMS", f"{'0' * 64}  jobs/../../x\n"),
        "not a line of it",
    ),
    "a signature without a key": (
        lambda f: (f / "SHA256SUMS.sig").write_text(SIGNATURE),
        "cosign.pub: missing",
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_each_planted_change_is_found_and_named(bundled: Any, name: str) -> None:
    plant, expected = CHANGES[name]
    plant(bundled.bundle)
    found = check(bundled.bundle)
    assert any(expected in line for line in found), found


def drop_layer(folder: Path) -> None:
    """Write the archive again without its layer."""
    kept = folder / "image.tar"
    with tarfile.open(kept) as old, tarfile.open(folder / "new.tar", "w") as new:
        members = old.getmembers()
        layer = max(members, key=lambda member: member.size)
        for member in members:
            if member is not layer:
                new.addfile(member, old.extractfile(member))
    (folder / "new.tar").replace(kept)


FORGED: dict[str, tuple[Callable[[Path], object], str]] = {
    "a byte of a layer": (lambda f: flip(f / "image.tar", 1600), "its content was changed"),
    "a layer that is not there": (drop_layer, "is missing or has another size"),
    "an archive that is none": (lambda f: (f / "image.tar").write_bytes(b"x" * 4000), "no OCI archive"),
    "another digest": (
        lambda f: edited(f, "manifest.json", lambda d: d["image"].update(manifest="sha256:" + "a" * 64)),
        "holds the image",
    ),
    "another fingerprint": (
        lambda f: edited(f, "manifest.json", lambda d: d.update(fingerprint="sha256:" + "a" * 64)),
        "its label verlock.fingerprint",
    ),
    "another schema": (
        lambda f: edited(f, "manifest.json", lambda d: d.update(schema_version=2)),
        "schema version 2",
    ),
    "a manifest that is none": (lambda f: (f / "manifest.json").write_text("[]"), "cannot be read"),
    "the SBOM of another image": (
        lambda f: edited(
            f, "sbom.cdx.json", lambda d: d["metadata"]["component"]["hashes"][0].update(content="0" * 64)
        ),
        "describes another image",
    ),
    "a job file without the digest": (
        lambda f: (f / "jobs" / "docker-run.sh").write_text("docker run verlock:cpu\n"),
        "jobs/docker-run.sh: does not name the image",
    ),
    "a tag in the RayJob": (
        lambda f: appended(f, "jobs/rayjob.yaml", "      - image: verlock:latest\n"),
        "names the image verlock:latest",
    ),
    "a job file that is listed and not there": (
        lambda f: (f / "jobs" / "ray-submit.sh").unlink(),
        "jobs/ray-submit.sh: missing",
    ),
}


@pytest.mark.parametrize("name", FORGED)
def test_new_sums_do_not_hide_a_change(bundled: Any, name: str) -> None:
    plant, expected = FORGED[name]
    plant(bundled.bundle)
    resum(bundled.bundle)
    found = check(bundled.bundle)
    assert any(expected in line for line in found), found


def test_another_whole_bundle_is_found_by_the_digest_that_was_expected(bundled: Any) -> None:
    found = check(bundled.bundle, digest="sha256:" + "a" * 64)
    assert any("expected was sha256:aaaa" in line for line in found)


def test_the_check_needs_nothing_but_python() -> None:
    tree = ast.parse(standalone.text())
    imported = {
        name.partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([a.name for a in node.names] if isinstance(node, ast.Import) else [str(node.module)])
    }
    assert imported <= sys.stdlib_module_names | {"__future__"}


def test_the_file_in_the_bundle_is_the_same_check(bundled: Any, tmp_path: Path) -> None:
    text = (bundled.bundle / "verify.py").read_text()
    for module in (verify, p256):
        assert Path(module.__file__).read_text().partition("\n\n\n")[2].strip() in text
    away = tmp_path / "away"
    shutil.copytree(bundled.bundle, away)
    command = [sys.executable, "-I", "-S", "verify.py"]
    good = subprocess.run(command, cwd=away, capture_output=True, text=True, check=False)
    assert (good.returncode, good.stdout.partition(":")[0]) == (0, "verified")
    flip(away / "sbom.cdx.json", 99)
    bad = subprocess.run(command, cwd=away, capture_output=True, text=True, check=False)
    assert bad.returncode == 36
    assert "sbom.cdx.json: changed" in bad.stdout
    none = subprocess.run([*command, "nowhere"], cwd=away, capture_output=True, text=True, check=False)
    assert none.returncode == 2


@pytest.fixture
def signed(tmp_path: Path) -> Path:
    """The file that was signed, in place of the sums: the signature is over its bytes, whatever they say."""
    (tmp_path / "SHA256SUMS").write_text("hi\n")
    (tmp_path / "SHA256SUMS.sig").write_text(SIGNATURE)
    (tmp_path / "cosign.pub").write_text(PUBLIC)
    return tmp_path


def test_a_signature_of_cosign_is_right(signed: Path) -> None:
    assert verify._signature(signed, None) == []
    assert verify._signature(signed, signed / "cosign.pub") == []


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("SHA256SUMS", "hi!\n", "wrong: SHA256SUMS was not signed"),
        ("SHA256SUMS.sig", SIGNATURE.replace("NNuD", "NNuE"), "wrong"),
        ("SHA256SUMS.sig", "MEUC", "cannot be read"),
        ("SHA256SUMS.sig", SIGNATURE.replace("MEY", "MEQ"), "not an ECDSA signature"),
        ("SHA256SUMS.sig", "?", "cannot be read"),
        ("cosign.pub", PUBLIC.replace("CHg==", "CHw=="), "no point of the curve"),
        ("cosign.pub", PUBLIC.replace("MFkw", "MFkx"), "not an ECDSA key"),
    ],
)
def test_a_wrong_signature_is_found(signed: Path, name: str, text: str, expected: str) -> None:
    (signed / name).write_text(text)
    assert any(expected in line for line in verify._signature(signed, None))


def test_a_key_was_given_and_nothing_is_signed(signed: Path) -> None:
    (signed / "SHA256SUMS.sig").unlink()
    assert verify._signature(signed, signed / "cosign.pub") == [
        "SHA256SUMS.sig: missing, and a key to check it with was given"
    ]


def test_an_old_python_says_that_it_is_old(bundled: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """3.7 and 3.8 must understand the file as far as that line: no later syntax, no name of later Pythons."""
    text = (bundled.bundle / "verify.py").read_text()
    ast.parse(text, feature_version=(3, 7))
    monkeypatch.setattr(sys, "version_info", (3, 8, 18))
    with pytest.raises(SystemExit, match=r"needs Python 3\.9"):
        exec(compile(text, "verify.py", "exec", dont_inherit=True), {"__name__": "verify"})


def test_a_digest_does_not_vouch_for_the_jobs(bundled: Any) -> None:
    assert "the job files and the record are not signed" in trust(
        bundled.bundle, digest=bundled.manifest, key=None
    )
