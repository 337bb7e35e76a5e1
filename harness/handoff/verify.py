#!/usr/bin/env python3
"""Checks a bundle of verlock against itself, offline, with nothing but Python (3.9 or newer).

    python3 verify.py [FOLDER] [--digest sha256:...] [--key cosign.pub]

Every file is compared with SHA256SUMS, and none may be missing or too many. The image's archive is read
blob by blob down to the digest that ``manifest.json`` names; each job file must name that digest and no tag.
A signature is checked where there is one. Exit code 0: all as it says; 36: it is not, and each finding is
a line; 2: no bundle.

What is inside cannot vouch for itself: give ``--digest`` (from whom you trust) or ``--key``, or the check
says only that nothing was damaged on the way. ``verlock handoff verify`` is this same code.
"""

from __future__ import annotations

import argparse
import base64
import binascii
import hashlib
import json
import re
import sys
import tarfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

SUMS, SIGNATURE, KEY, MANIFEST = "SHA256SUMS", "SHA256SUMS.sig", "cosign.pub", "manifest.json"
SCHEMA_VERSION = 1
EXIT_CODE = 36
_LINE = re.compile(r"([0-9a-f]{64})  ([A-Za-z0-9][A-Za-z0-9._/-]*)")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
# An image named by a tag in a job file: in YAML, or as an engine's argument.
_IMAGE = re.compile(r"^\s*(?:-\s+)?image:\s*[\"']?(?P<name>[^\s\"'#]+)", re.MULTILINE)
_CHUNK = 1 << 20


def locate(folder: Path) -> Path:
    """The bundle in ``folder``, or in its part ``handoff`` (``dist/PROFILE`` holds more than the bundle)."""
    inside = folder / "handoff"
    return inside if not (folder / SUMS).exists() and (inside / SUMS).is_file() else folder


def check(folder: Path, *, digest: str | None = None, key: Path | None = None) -> list[str]:
    """All that is wrong with the bundle, one line a finding; empty if it is what it says."""
    sums, found = _listed(folder)
    if not sums:
        return found
    found += _files(folder, sums)
    found += _signature(folder, key)
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        found += _described(folder, manifest, digest)
    except FileNotFoundError:
        pass  # said above
    except (ValueError, KeyError, TypeError, AttributeError, UnicodeDecodeError) as error:
        found.append(f"{MANIFEST}: cannot be read: {type(error).__name__}: {error}")
    return list(dict.fromkeys(found))


def trust(folder: Path, *, digest: str | None, key: Path | None) -> str:
    """What the result rests on, in one sentence."""
    if key is not None:
        return f"signed by the key {key}"
    if digest is not None:
        return f"its image is {digest}, which you gave"
    if (folder / SIGNATURE).exists():
        return "signed by the key that lies beside it; give --key with the sender's own to know who signed"
    return "not signed: whole and consistent, but give --digest to know that it is the one you expect"


def _listed(folder: Path) -> tuple[dict[str, str], list[str]]:
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
            yield f"{name}: missing"
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
    archive = image["archive"]
    if archive is not None:
        yield from _archive(folder / archive["file"], archive["file"], manifest)
    for name in manifest["jobs"]:
        yield from _job(folder / name, name, image)
    for name in (manifest["sbom"], *([manifest["proof"]["record"]] if manifest["proof"]["record"] else [])):
        if not (folder / name).is_file():
            yield f"{name}: missing"
    sbom = json.loads((folder / manifest["sbom"]).read_text(encoding="utf-8"))
    described = {entry["content"] for entry in sbom["metadata"]["component"]["hashes"]}
    if described != {image["manifest"].partition(":")[2]}:
        yield f"{manifest['sbom']}: describes another image than {image['manifest']}"


def _job(path: Path, name: str, image: dict[str, Any]) -> Iterator[str]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        yield f"{name}: missing or not text"
        return
    if image["manifest"] not in text:
        yield f"{name}: does not name the image {image['manifest']}"
    for match in _IMAGE.finditer(text):
        if not match["name"].endswith("@" + image["manifest"]):
            line = text.count("\n", 0, match.start("name")) + 1
            yield f"{name}:{line}: names the image {match['name']}, not by the digest {image['manifest']}"


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


def _blobs(
    archive: tarfile.TarFile, name: str
) -> Generator[str, None, tuple[dict[str, int], dict[str, bytes]]]:
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
    while chunk := file.read(_CHUNK):
        total.update(chunk)
    return total.hexdigest()


# cosign's key is ECDSA on NIST P-256. Python has no ECDSA of its own, and to check one (nothing here is
# secret) takes the formulas of FIPS 186-5, section 6.4.2, with the curve of SP 800-186.
_P = 2**256 - 2**224 + 2**192 + 2**96 - 1
_N = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_B = 0x5AC635D8AA3A93E7B3EBBD55769886BC651D06B0CC53B0F63BCE3C3E27D2604B
_G = (
    0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
    0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5,
)
_SPKI = bytes.fromhex("3059301306072a8648ce3d020106082a8648ce3d030107034200" + "04")


def _signature(folder: Path, key: Path | None) -> list[str]:
    if not (folder / SIGNATURE).is_file():
        return [f"{SIGNATURE}: missing, and a key to check it with was given"] if key else []
    public = key or folder / KEY
    try:
        point = _public(public.read_text(encoding="ascii"))
        r, s = _der(base64.b64decode((folder / SIGNATURE).read_text(encoding="ascii"), validate=True))
    except FileNotFoundError:
        return [f"{public.name}: missing: the signature cannot be checked"]
    except (ValueError, binascii.Error, IndexError) as error:
        return [f"{SIGNATURE}: cannot be read: {error}"]
    signed = int.from_bytes(hashlib.sha256((folder / SUMS).read_bytes()).digest(), "big")
    return (
        []
        if _signed(point, signed, r, s)
        else [f"{SIGNATURE}: wrong: {SUMS} was not signed with {public.name}"]
    )


def _signed(public: tuple[int, int], value: int, r: int, s: int) -> bool:
    if not (0 < r < _N and 0 < s < _N):
        return False
    inverse = pow(s, -1, _N)
    point = _add(_times(value * inverse % _N, _G), _times(r * inverse % _N, public))
    return point is not None and point[0] % _N == r


def _add(one: tuple[int, int] | None, other: tuple[int, int] | None) -> tuple[int, int] | None:
    if one is None or other is None:
        return one or other
    if one[0] == other[0] and (one[1] + other[1]) % _P == 0:
        return None
    if one == other:
        slope = (3 * one[0] * one[0] - 3) * pow(2 * one[1], -1, _P) % _P
    else:
        slope = (other[1] - one[1]) * pow(other[0] - one[0], -1, _P) % _P
    x = (slope * slope - one[0] - other[0]) % _P
    return x, (slope * (one[0] - x) - one[1]) % _P


def _times(factor: int, point: tuple[int, int] | None) -> tuple[int, int] | None:
    result = None
    while factor:
        if factor & 1:
            result = _add(result, point)
        point = _add(point, point)
        factor >>= 1
    return result


def _public(pem: str) -> tuple[int, int]:
    body = "".join(line for line in pem.split() if "-" not in line and line not in ("PUBLIC", "KEY"))
    data = base64.b64decode(body, validate=True)
    if len(data) != len(_SPKI) + 64 or not data.startswith(_SPKI):
        raise ValueError("the key is not an ECDSA key on P-256, as cosign makes them")
    x, y = (int.from_bytes(data[-64 + i : len(data) - 32 + i], "big") for i in (0, 32))
    if x >= _P or y >= _P or (y * y - (x * x * x - 3 * x + _B)) % _P:
        raise ValueError("the key is no point of the curve P-256")
    return x, y


def _der(data: bytes) -> tuple[int, int]:
    if len(data) < 8 or data[0] != 0x30 or data[1] != len(data) - 2:
        raise ValueError("not an ECDSA signature in DER")
    values, rest = [], data[2:]
    while rest:
        if rest[0] != 2 or len(rest) < 2 + rest[1]:
            raise ValueError("not an ECDSA signature in DER")
        values.append(int.from_bytes(rest[2 : 2 + rest[1]], "big"))
        rest = rest[2 + rest[1] :]
    if len(values) != 2:
        raise ValueError("not an ECDSA signature in DER")
    return values[0], values[1]


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
        parser.error(f"{folder} is no folder")
    found = check(folder, digest=given.digest, key=given.key)
    rests = trust(folder, digest=given.digest, key=given.key)
    lines = [*found, f"{len(found)} findings: not what it says" if found else f"verified: {rests}"]
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return EXIT_CODE if found else 0


if __name__ == "__main__":
    sys.exit(main())
