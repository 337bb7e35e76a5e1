"""Small images, written down in each of the ways that engines do it."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import random
import sys
import tarfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


@pytest.fixture(scope="session")
def saving() -> ModuleType:
    """This module: tests are no package that could be imported from."""
    return sys.modules[__name__]


@dataclass(frozen=True, kw_only=True)
class Item:
    """One member of a layer."""

    name: str
    data: bytes = b""
    kind: bytes = tarfile.REGTYPE
    mode: int = 0o644
    uid: int = 0
    gid: int = 0
    link: str = ""
    mtime: float = 1_700_000_000
    pax: dict[str, str] = field(default_factory=dict)


def folder(name: str, mode: int = 0o755) -> Item:
    return Item(name=name, kind=tarfile.DIRTYPE, mode=mode)


def whiteout(name: str) -> Item:
    parent, _, last = name.rpartition("/")
    return Item(name=f"{parent}/.wh.{last}".lstrip("/"))


CONFIG: dict[str, Any] = {
    "architecture": "amd64",
    "os": "linux",
    "config": {"Env": ["PATH=/bin"], "Cmd": ["sh"], "User": "1000:1000", "Labels": {"a": "b"}},
}
BASE = [
    folder("etc"),
    Item(name="etc/one", data=b"one"),
    Item(name="etc/two", data=b"two"),
    folder("opt"),
    folder("opt/old"),
    Item(name="opt/old/x", data=b"x"),
    Item(name="opt/old/y", data=b"y"),
    Item(name="bin", kind=tarfile.SYMTYPE, link="usr/bin", mode=0o777),
    folder("usr"),
    folder("usr/bin"),
    Item(name="usr/bin/perl", data=b"perl" * 1000, mode=0o755),
    Item(name="usr/bin/perl5", kind=tarfile.LNKTYPE, link="usr/bin/perl", mode=0o755),
]
TOP = [
    Item(name="etc/one", data=b"changed"),
    whiteout("etc/two"),
    folder("opt/new"),
    Item(name="opt/new/file", data=b"new" * 5000, uid=1000, gid=1000),
    whiteout("opt/old"),
]


def tar(items: list[Item]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for item in items:
            info = tarfile.TarInfo(item.name)
            info.type, info.mode, info.uid, info.gid = item.kind, item.mode, item.uid, item.gid
            info.linkname, info.mtime, info.size = item.link, item.mtime, len(item.data)
            info.uname = "somebody"
            info.pax_headers = dict(item.pax)
            archive.addfile(info, io.BytesIO(item.data))
    return out.getvalue()


def legacy(path: Path, layers: list[list[Item]], config: dict[str, Any] = CONFIG) -> Path:
    """As Docker 20.10 saves: a folder a layer, and the list last."""
    blobs = [tar(layer) for layer in layers]
    made = _config(config, blobs, created="2026-01-01T00:00:00Z", docker_version="20.10.24")
    name = hashlib.sha256(made).hexdigest() + ".json"
    files = {f"{number:064x}/layer.tar": blob for number, blob in enumerate(blobs)}
    listed = [{"Config": name, "RepoTags": ["x:y"], "Layers": list(files)}]
    return _archive(path, {**files, name: made, "manifest.json": json.dumps(listed).encode()})


def layout(
    path: Path, layers: list[list[Item]], config: dict[str, Any] = CONFIG, *, listed: bool = True
) -> Path:
    """As Docker 25 and later save with the containerd store: blobs, packed, with a build statement beside."""
    plain = [tar(layer) for layer in layers]
    packed = [gzip.compress(blob) for blob in plain]
    made = _config(config, plain, created="2026-02-02T00:00:00Z", moby={"exporter": 1})
    files = {_blob(data): data for data in [*packed, made]}
    manifest = json.dumps(
        {"config": _descriptor(made), "layers": [_descriptor(data) for data in packed]}
    ).encode()
    statement = {"digest": "sha256:00", "annotations": {"vnd.docker.reference.type": "attestation-manifest"}}
    nested = json.dumps({"manifests": [_descriptor(manifest), statement]}).encode()
    files |= {_blob(manifest): manifest, _blob(nested): nested, "oci-layout": b"{}"}
    files["index.json"] = json.dumps({"manifests": [_descriptor(nested)]}).encode()
    if listed:
        names = [{"Config": _blob(made), "RepoTags": [], "Layers": [_blob(data) for data in packed]}]
        files["manifest.json"] = json.dumps(names).encode()
    return _archive(path, files)


def told_otherwise(base: list[Item], top: list[Item]) -> list[list[Item]]:
    """BASE and TOP as another store might tell them: all of it again, in another order, at another time."""
    shuffled = [replace(item, mtime=item.mtime + 1e6, mode=item.mode | 0o100000) for item in base]
    again = [folder("etc"), folder("opt"), *top, folder("usr"), replace(base[-2], mtime=5.5)]
    again.append(Item(name="usr/bin/perl5", kind=tarfile.LNKTYPE, link="usr/bin/perl", mode=0o755))
    links = [item for item in shuffled if item.kind == tarfile.LNKTYPE]
    rest = [replace(item, name=f"./{item.name}") for item in shuffled if item.kind != tarfile.LNKTYPE]
    random.Random(4).shuffle(rest)
    return [[folder("./"), *rest, *links], [], again]


def _config(config: dict[str, Any], blobs: list[bytes], **more: Any) -> bytes:
    diffs = ["sha256:" + hashlib.sha256(blob).hexdigest() for blob in blobs]
    return json.dumps({**config, **more, "rootfs": {"type": "layers", "diff_ids": diffs}}).encode()


def _blob(data: bytes) -> str:
    return f"blobs/sha256/{hashlib.sha256(data).hexdigest()}"


def _descriptor(data: bytes) -> dict[str, Any]:
    return {"digest": "sha256:" + hashlib.sha256(data).hexdigest(), "size": len(data)}


def _archive(path: Path, files: dict[str, bytes]) -> Path:
    path.write_bytes(tar([Item(name=name, data=data) for name, data in files.items()]))
    return path
