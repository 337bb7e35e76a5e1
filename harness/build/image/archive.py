"""Writing the one archive that an image is handed on as: an OCI layout that ``docker load`` takes too.

Its bytes depend on the image alone: members in a fixed order, no times, no compression (two versions of
zlib give two results). A layer goes straight into the archive; its header, which needs the digest, is
written when the layer is done.
"""

from __future__ import annotations

import hashlib
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from harness.build.image.entries import CHUNK, Entry
from harness.build.image.layers import write

LAYER = "application/vnd.oci.image.layer.v1.tar"
CONFIG = "application/vnd.oci.image.config.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"


class Writer:
    """An archive that is being written into an open file."""

    def __init__(self, file: BinaryIO, *, epoch: int) -> None:
        """Take an empty file that can be read and sought in."""
        self._file = file
        self._epoch = epoch
        self._there: set[str] = set()
        for folder in (
            "blobs",
            "blobs/sha256",
        ):  # apptainer 1.4.5 unpacks no file whose folder was not a member
            self._file.write(self._header(folder, 0, tarfile.DIRTYPE))

    def layer(self, changes: Iterator[tuple[str, Entry | None]]) -> dict[str, Any] | None:
        """Append a layer and return its descriptor; none if it changes nothing."""
        start = self._file.tell()
        self._file.write(bytes(tarfile.BLOCKSIZE))
        with tarfile.open(fileobj=self._file, mode="w", format=tarfile.PAX_FORMAT) as archive:
            entries = write(changes, archive, epoch=self._epoch)
            end = archive.offset
        # tarfile fills up to a multiple of 10240 from the file's beginning: other layers' sizes would show.
        self._cut(end)
        self._file.write(bytes(2 * tarfile.BLOCKSIZE))
        end = self._file.tell()
        begin = start + tarfile.BLOCKSIZE
        if not entries:
            self._cut(start)
            return None
        self._file.seek(begin)
        digest = _digest(self._file, end - begin)
        descriptor = _described(LAYER, digest, end - begin)
        if self._new(digest):
            self._file.seek(start)
            self._file.write(self._header(_blob(digest), end - begin))
            self._file.seek(end)
        else:
            self._cut(start)
        return descriptor

    def document(self, content: object, kind: str) -> dict[str, Any]:
        """Append a JSON document as a blob and return its descriptor."""
        data = _json(content)
        digest = hashlib.sha256(data).hexdigest()
        if self._new(digest):
            self._member(_blob(digest), data)
        return _described(kind, digest, len(data))

    def finish(self, manifest: dict[str, Any], config: str, layers: list[str], name: str) -> None:
        """Append what leads to the blobs: for OCI readers the index, for ``docker load`` its own list."""
        repository, _, tag = name.rpartition(":")
        # containerd knows an image by its full name only (docker 29 loads it without a name otherwise).
        annotations = {
            "io.containerd.image.name": f"docker.io/library/{repository}:{tag}",
            "org.opencontainers.image.ref.name": tag,
        }
        index = {
            "schemaVersion": 2,
            "mediaType": INDEX,
            "manifests": [{**manifest, "annotations": annotations}],
        }
        listed = [{"Config": _of(config), "RepoTags": [name], "Layers": [_of(layer) for layer in layers]}]
        self._member("index.json", _json(index))
        self._member("manifest.json", _json(listed))
        self._member("oci-layout", _json({"imageLayoutVersion": "1.0.0"}))
        self._file.write(bytes(2 * tarfile.BLOCKSIZE))

    def _member(self, name: str, data: bytes) -> None:
        self._file.write(self._header(name, len(data)) + data + bytes(-len(data) % tarfile.BLOCKSIZE))

    def _header(self, name: str, size: int, kind: bytes = tarfile.REGTYPE) -> bytes:
        info = tarfile.TarInfo(name)
        info.size, info.mtime, info.type = size, self._epoch, kind
        if kind == tarfile.DIRTYPE:
            info.mode = 0o755
        # GNU's format has one block at any size, so the header's place is known before the layer's size.
        return info.tobuf(tarfile.GNU_FORMAT)

    def _new(self, digest: str) -> bool:
        new = digest not in self._there
        self._there.add(digest)
        return new

    def _cut(self, end: int) -> None:
        self._file.seek(end)
        self._file.truncate()


def sha256(path: Path) -> str:
    """Of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _digest(file: BinaryIO, size: int) -> str:
    digest = hashlib.sha256()
    while size:
        chunk = file.read(min(CHUNK, size))
        if not chunk:
            raise OSError("the archive that is being written lost its end")
        digest.update(chunk)
        size -= len(chunk)
    return digest.hexdigest()


def _described(kind: str, digest: str, size: int) -> dict[str, Any]:
    return {"mediaType": kind, "digest": f"sha256:{digest}", "size": size}


def _blob(digest: str) -> str:
    return f"blobs/sha256/{digest}"


def _of(digest: str) -> str:
    return _blob(digest.removeprefix("sha256:"))


def _json(content: object) -> bytes:
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
