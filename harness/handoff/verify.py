#!/usr/bin/env python3
"""Checks a bundle of verlock against itself, offline, with nothing but Python (3.9 or newer).

    python3 verify.py [FOLDER] [--digest sha256:...] [--key cosign.pub]

Every file is compared with SHA256SUMS, and none may be missing or too many. The image's archive is read
blob by blob down to the digest that ``manifest.json`` names; each job file must name that digest and no tag.
A signature is checked where there is one. Exit code 0: all as it says; 36: it is not, and each finding is
a line; 2: no folder.

What is inside cannot vouch for itself: give ``--digest`` (from whom you trust) or ``--key``, or the check
says only that nothing was damaged on the way. ``verlock handoff verify`` is this same code.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
import tarfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

if sys.version_info < (3, 9):  # noqa: UP036 - the receiver's Python, not ours
    sys.exit("verify.py needs Python 3.9 or newer")

from harness.handoff.p256 import public_key, signature, signed

SUMS, SIGNATURE, KEY, MANIFEST = "SHA256SUMS", "SHA256SUMS.sig", "cosign.pub", "manifest.json"
SCHEMA_VERSION = 1
EXIT_CODE = 36
_LINE = re.compile(r"([0-9a-f]{64})  ([A-Za-z0-9][A-Za-z0-9._/-]*)")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
# An image named by a tag in a job file: in YAML, or as an engine's argument.
_IMAGE = re.compile(r"\s*(?:-\s+)?image:\s*[\"']?(?P<name>[^\s\"'#]+)")
_CHUNK = 1 << 20


def locate(folder: Path) -> Path:
    """The bundle in ``folder``, or in its part ``handoff`` (``dist/PROFILE`` holds more than the bundle)."""
    inside = folder / "handoff"
    return inside if not (folder / SUMS).exists() and (inside / SUMS).is_file() else folder


def check(folder: Path, *, digest: str | None = None, key: Path | None = None) -> list[str]:
    """All that is wrong with the bundle, one line a finding; empty if it is what it says."""
    if not (folder / SUMS).exists():
        there = "it has no " + SUMS if folder.is_dir() else "it is no folder"
        return [f"{folder}: is no bundle, {there}; name the folder that `verlock handoff PROFILE` made"]
    sums, found = listed(folder)
    if not sums:
        return found
    found += _files(folder, sums)
    found += _signature(folder, key)
    if not (folder / MANIFEST).is_file():
        return list(dict.fromkeys(found))  # said above
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        found += _described(folder, manifest, digest)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, UnicodeDecodeError) as error:
        found.append(f"{MANIFEST}: cannot be read: {type(error).__name__}: {error}")
    return list(dict.fromkeys(found))


def trust(folder: Path, *, digest: str | None, key: Path | None) -> str:
    """What the result rests on, in one sentence."""
    if key is not None:
        return f"signed by the key {key}"
    signed_by = "signed by the key that lies beside it; give --key with the sender's own to know who signed"
    signature_there = (folder / SIGNATURE).exists()
    if digest is not None:
        rest = signed_by if signature_there else "not signed: who changed them could have made new sums"
        return f"its image is {digest}, which you gave; the job files and the record are {rest}"
    if signature_there:
        return signed_by
    return "not signed: whole and consistent, but give --digest to know that it is the one you expect"


def listed(folder: Path) -> tuple[dict[str, str], list[str]]:
    """File to sum, as SHA256SUMS has them, and what is wrong with it."""
    if not (folder / SUMS).is_file():
        return {}, [f"{SUMS}: is no plain file"]
    try:
        text = (folder / SUMS).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        return {}, [f"{SUMS}: cannot be read: {error}"]
    sums: dict[str, str] = {}
    found = []
    for number, line in enumerate(text.splitlines(), start=1):
        match = _LINE.fullmatch(line)
        if match is None or ".." in match[2].split("/") or match[2] in sums:
            found.append(f"{SUMS}:{number}: not a line of it: {line[:100]!r}")
        else:
            sums[match[2]] = match[1]
    if MANIFEST not in sums:
        found.append(f"{SUMS}: does not list {MANIFEST}")
    return sums, found


def _files(folder: Path, sums: dict[str, str]) -> Iterator[str]:
    own = {SUMS, SIGNATURE, KEY}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            yield f"{name}: a link or a special file: a bundle holds plain files only"
        elif path.is_file() and name not in sums and name not in own:
            yield f"{name}: not listed in {SUMS}: an extra file"
    for name, expected in sorted(sums.items()):
        path = folder / name
        if not path.is_file():
            yield f"{name}: {'is no plain file' if path.exists() else 'missing'}"
            continue
        with path.open("rb") as file:
            actual = _sha256(file)
        if actual != expected:
            yield f"{name}: changed: its sha256 is {actual}, {SUMS} says {expected}"


def _described(folder: Path, manifest: dict[str, Any], digest: str | None) -> Iterator[str]:
    version = manifest.get("schema_version")
    if version != SCHEMA_VERSION:
        yield f"{MANIFEST}: schema version {version!r}, this verify.py reads {SCHEMA_VERSION}"
        return
    image = manifest["image"]
    if digest is not None and digest != image["manifest"]:
        yield f"{MANIFEST}: its image is {image['manifest']}, expected was {digest}"
    if image["archive"] is not None:
        yield from _archive(folder / image["archive"]["file"], image["archive"]["file"], manifest)
    for name in manifest["jobs"]:
        yield from _job(folder / name, name, image)
    record = manifest["proof"]["record"]
    if record and not (folder / record).is_file():
        yield f"{record}: missing"
    if not (folder / manifest["sbom"]).is_file():
        yield f"{manifest['sbom']}: missing"
        return
    sbom = json.loads((folder / manifest["sbom"]).read_text(encoding="utf-8"))
    described = {entry["content"] for entry in sbom["metadata"]["component"]["hashes"]}
    if described != {image["manifest"].partition(":")[2]}:
        yield f"{manifest['sbom']}: describes another image than {image['manifest']}"


def _job(path: Path, name: str, image: dict[str, Any]) -> Iterator[str]:
    if not path.is_file():
        yield f"{name}: missing"
        return
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        yield f"{name}: is no text"
        return
    if image["manifest"] not in text:
        yield f"{name}: does not name the image {image['manifest']}"
    for number, line in enumerate(text.splitlines(), start=1):
        match = _IMAGE.match(line)
        if match and not match["name"].endswith("@" + image["manifest"]):
            yield f"{name}:{number}: names the image {match['name']}, not by the digest {image['manifest']}"


def _archive(path: Path, name: str, manifest: dict[str, Any]) -> Iterator[str]:
    """From the outside in: index, manifest, config and layers, each by the digest that names it."""
    if not path.is_file():
        yield f"{name}: missing"
        return
    try:
        with tarfile.open(path, mode="r:") as archive:
            yield from _layout(archive, name, manifest)
    except (tarfile.TarError, OSError, ValueError, KeyError, IndexError, TypeError) as error:
        yield f"{name}: no OCI archive: {type(error).__name__}: {error}"


def _layout(archive: tarfile.TarFile, name: str, manifest: dict[str, Any]) -> Iterator[str]:
    image = manifest["image"]
    blobs, small = yield from _blobs(archive, name)
    named = [entry["digest"] for entry in json.loads(small["index.json"])["manifests"]]
    if named != [image["manifest"]]:
        yield f"{name}: holds the image {', '.join(named)}, {MANIFEST} says {image['manifest']}"
    content = json.loads(small[_blob(named[0])])
    parts = [content["config"], *content["layers"]]
    for entry in parts:
        if blobs.get(entry["digest"]) != entry["size"]:
            yield f"{name}: the blob {entry['digest']} is missing or has another size"
    used = {named[0], *(entry["digest"] for entry in parts)}
    yield from (f"{name}: the image does not use the blob {blob}" for blob in blobs if blob not in used)
    labels = json.loads(small[_blob(parts[0]["digest"])])["config"].get("Labels") or {}
    # docker load reads a list of its own: it must lead to the same image.
    listed = [(entry["Config"], entry["Layers"]) for entry in json.loads(small["manifest.json"])]
    for what, actual, expected in (
        ("config", parts[0]["digest"], image["config"]),
        ("label verlock.fingerprint", labels.get("verlock.fingerprint"), manifest["fingerprint"]),
        (
            "list for docker load",
            listed,
            [(_blob(parts[0]["digest"]), [_blob(e["digest"]) for e in parts[1:]])],
        ),
    ):
        if actual != expected:
            yield f"{name}: its {what} is {actual}, and not {expected}"


Read = tuple[dict[str, int], dict[str, bytes]]


def _blobs(archive: tarfile.TarFile, name: str) -> Generator[str, None, Read]:
    """Digest to size of each blob whose content has its digest, and the small files; findings are yielded."""
    blobs: dict[str, int] = {}
    small: dict[str, bytes] = {}
    for member in archive:
        opened = archive.extractfile(member)
        if opened is not None and member.name.startswith("blobs/sha256/"):
            digest, actual = "sha256:" + member.name.rpartition("/")[2], "sha256:" + _sha256(opened)
            blobs[digest] = member.size
            if actual != digest:
                yield f"{name}: the blob {digest} is {actual}: its content was changed"
        if opened is not None and member.size < _CHUNK:
            opened.seek(0)
            small[member.name] = opened.read()
    return blobs, small


def _blob(digest: str) -> str:
    return "blobs/sha256/" + digest.partition(":")[2]


def _sha256(file: Any) -> str:
    total = hashlib.sha256()
    for chunk in iter(lambda: file.read(_CHUNK), b""):  # no :=, so that an old Python can say that it is old
        total.update(chunk)
    return total.hexdigest()


def _signature(folder: Path, key: Path | None) -> list[str]:
    if not (folder / SIGNATURE).is_file():
        return [f"{SIGNATURE}: missing, and a key to check it with was given"] if key else []
    public = key or folder / KEY
    if not public.is_file():
        return [f"{public.name}: missing: the signature cannot be checked"]
    try:
        point = public_key(public.read_text(encoding="ascii"))
        pair = signature((folder / SIGNATURE).read_text(encoding="ascii"))
    except (OSError, ValueError, IndexError) as error:
        return [f"{SIGNATURE}: cannot be read: {error}"]
    if signed(point, (folder / SUMS).read_bytes(), pair):
        return []
    return [f"{SIGNATURE}: wrong: {SUMS} was not signed with {public.name}"]


def main(words: list[str] | None = None) -> int:
    """Check the bundle that the command line names; the folder of this file if it names none."""
    parser = argparse.ArgumentParser(description="Checks a bundle of verlock, offline.")
    parser.add_argument("folder", nargs="?", type=Path, default=Path(__file__).resolve().parent)
    parser.add_argument("--digest", help="the image that is expected: sha256:...")
    parser.add_argument("--key", type=Path, help="the public key of the sender")
    given = parser.parse_args(words)
    if given.digest is not None and not _DIGEST.fullmatch(given.digest):
        parser.error("--digest takes sha256: and 64 hexadecimal digits")
    folder = locate(given.folder)
    if not folder.is_dir():
        parser.error(f"{folder} is no folder; name the one that verlock handoff made")
    found = check(folder, digest=given.digest, key=given.key)
    rests = trust(folder, digest=given.digest, key=given.key)
    number = "1 finding" if len(found) == 1 else f"{len(found)} findings"
    lines = [*found, f"{number}: the bundle is not what it says" if found else f"verified: {rests}"]
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return EXIT_CODE if found else 0


if __name__ == "__main__":
    sys.exit(main())
