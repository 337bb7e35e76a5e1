"""Reading what an engine saved: ``docker save`` before and since Docker 25, podman, and plain OCI layouts.

The archive is read where it lies, without unpacking. Nothing in it is believed: each layer must have the
digest that the image's configuration gives it, so a damaged archive is found before anything is made of it.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import json
import os
import posixpath
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from harness.build.files import disk_errors, shown
from harness.build.image.entries import CHUNK, Entry
from harness.build.image.layers import apply
from harness.errors import ImageError

_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"


@dataclass(frozen=True, kw_only=True)
class Saved:
    """An image as an engine wrote it down."""

    config: dict[str, Any]
    layers: tuple[tarfile.TarFile, ...]

    def trees(self) -> Iterator[dict[str, Entry]]:
        """What the file system holds after each layer."""
        tree: dict[str, Entry] = {}
        for number, layer in enumerate(self.layers):
            tree = apply(tree, layer, number)
            yield tree


class Window(io.RawIOBase):
    """A part of a file as a file of its own; several may be read by turns."""

    def __init__(self, file: BinaryIO, offset: int, size: int) -> None:
        self._file, self._offset, self._size, self._at = file, offset, size, 0

    def readable(self) -> bool:  # noqa: D102
        return True

    def seekable(self) -> bool:  # noqa: D102
        return True

    def tell(self) -> int:  # noqa: D102
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:  # noqa: D102
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:  # noqa: D102
        wanted = max(0, min(len(buffer), self._size - self._at))
        data = os.pread(self._file.fileno(), wanted, self._offset + self._at)
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


@contextlib.contextmanager
def open_saved(path: Path) -> Iterator[Saved]:
    """The image in the archive ``path``; its layers can be read until the block ends.

    Raises:
        ImageError: missing, cut off, damaged, compressed as a whole, or not an image.
        DiskFullError: no room to unpack a compressed layer.
    """
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise _bad(path, "is no file", "a pipe or device cannot be read twice, and a pipe may never end")
    with contextlib.ExitStack() as stack:
        try:
            file = stack.enter_context(path.open("rb"))
        except OSError as error:
            raise _bad(path, f"cannot be read: {error.strerror}") from None
        try:
            yield _read(path, file, stack)
        except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise _bad(path, "is cut off or damaged", str(error)) from None
        except KeyError as error:
            raise _bad(path, "is not a saved image", f"there is no {error.args[0]} in it") from None
        except json.JSONDecodeError as error:
            raise _bad(path, "is not a saved image", f"a part that must be JSON is not: {error}") from None
        except UnicodeDecodeError:
            raise _bad(path, "is not a saved image", "a part that must be JSON is no text") from None
        except ValueError as error:
            raise _bad(path, "is not a saved image", str(error)) from None
        except (IndexError, TypeError, AttributeError):
            why = "its manifest or its configuration has another form than an image's"
            raise _bad(path, "is not a saved image", why) from None


def whole(archive: tarfile.TarFile) -> list[tarfile.TarInfo]:
    """The members of an archive that has its end mark; tarfile takes a cut between two members for it."""
    members = archive.getmembers()
    file = archive.fileobj
    if file is None:
        raise tarfile.ReadError("the archive is closed")
    file.seek(archive.offset)
    if file.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
        raise tarfile.ReadError("the archive has no end mark")
    return members


def _read(path: Path, file: BinaryIO, stack: contextlib.ExitStack) -> Saved:
    outer = stack.enter_context(tarfile.open(fileobj=file, mode="r:"))  # noqa: SIM115 - the stack closes it
    members = {posixpath.normpath(member.name): member for member in whole(outer)}

    def window(name: str) -> Window:
        member = members[posixpath.normpath(name)]
        if member.issym():  # Docker before 25 writes a layer once, and links to it
            return window(posixpath.join(posixpath.dirname(member.name), member.linkname))
        return Window(file, member.offset_data, member.size)

    config_name, layer_names = _names(members.keys(), lambda name: json.loads(window(name).readall() or b""))
    config = json.loads(window(config_name).readall() or b"")
    diffs = config["rootfs"]["diff_ids"]
    if len(diffs) != len(layer_names):
        raise ValueError(f"{len(layer_names)} layers, of which the configuration knows {len(diffs)}")
    layers = [_layer(window(name), diff, path, stack) for name, diff in zip(layer_names, diffs, strict=True)]
    return Saved(config=config, layers=tuple(layers))


def _names(there: Any, read: Any) -> tuple[str, list[str]]:
    """The configuration and the layers, by their names in the archive."""
    if "manifest.json" in there:
        images = read("manifest.json")
        if len(images) != 1:
            raise ValueError(f"the archive holds {len(images)} images")
        return images[0]["Config"], images[0]["Layers"]
    if "index.json" not in there:
        raise ValueError("there is neither a manifest.json nor an index.json in it")
    manifest = read("index.json")
    while "manifests" in manifest:
        # Beside the image there may be a statement about how it was built.
        images = [
            m for m in manifest["manifests"] if "vnd.docker.reference.type" not in m.get("annotations", {})
        ]
        if len(images) != 1:
            raise ValueError(f"the archive holds {len(images)} images")
        manifest = read(_blob(images[0]))
    return _blob(manifest["config"]), [_blob(layer) for layer in manifest["layers"]]


def _blob(descriptor: dict[str, Any]) -> str:
    return "blobs/" + str(descriptor["digest"]).replace(":", "/")


def _layer(window: Window, diff: str, path: Path, stack: contextlib.ExitStack) -> tarfile.TarFile:
    start = window.read(4) or b""
    window.seek(0)
    if start == _ZSTD:
        raise _bad(path, "has a layer compressed with zstd", todo="save it uncompressed: docker save")
    plain: BinaryIO = io.BufferedReader(window, CHUNK)
    if start.startswith(_GZIP):
        with disk_errors(path.parent):
            plain = _unpacked(plain, path.parent, stack)
    hashed = hashlib.sha256()
    while chunk := plain.read(CHUNK):
        hashed.update(chunk)
    digest = f"sha256:{hashed.hexdigest()}"
    if digest != diff:
        raise tarfile.ReadError(f"a layer has the digest {digest}, and the image's configuration says {diff}")
    plain.seek(0)
    layer = stack.enter_context(tarfile.open(fileobj=plain, mode="r:"))  # noqa: SIM115 - the stack closes it
    whole(layer)
    return layer


def _unpacked(packed: BinaryIO, scratch: Path, stack: contextlib.ExitStack) -> BinaryIO:
    file = stack.enter_context(tempfile.TemporaryFile(dir=scratch))  # noqa: SIM115 - the stack closes it
    with gzip.open(packed) as unpacker:
        while chunk := unpacker.read(CHUNK):
            file.write(chunk)
    file.seek(0)
    return file


def _bad(path: Path, what: str, why: str | None = None, *, todo: str | None = None) -> ImageError:
    todo = todo or "save the image again: docker save -o FILE IMAGE, or verlock build"
    return ImageError(f"the archive {what}", where=shown(path), why=why, todo=todo)
