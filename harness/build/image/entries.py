"""What stands at one path of a layer, as far as an image's identity goes: no times, no user names."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field

CHUNK = 1 << 20
# What the overlay driver keeps for itself; another store does not write it.
_FOREIGN = ("SCHILY.xattr.trusted.overlay.", "SCHILY.xattr.user.overlay.")
_KINDS = frozenset(
    {tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.DIRTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE}
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Content:
    """A file's bytes, still inside the layer that they came in."""

    archive: tarfile.TarFile
    member: tarfile.TarInfo

    @property
    def size(self) -> int:
        """In bytes."""
        return self.member.size

    def chunks(self) -> Iterator[bytes]:
        """The bytes, a piece at a time. Raises tarfile.ReadError or OSError where the archive is cut off."""
        file = self.archive.extractfile(self.member)
        left = self.size
        while file is not None and left:
            chunk = file.read(min(CHUNK, left))
            if not chunk:
                raise tarfile.ReadError(f"{self.member.name} ends {left} bytes early")
            left -= len(chunk)
            yield chunk

    def same(self, other: Content) -> bool:
        """Whether the bytes are equal; read only if the sizes are."""
        if self is other:
            return True
        if self.size != other.size:
            return False
        return all(a == b for a, b in zip(self.chunks(), other.chunks(), strict=True))


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """A file, folder, link or device. Two are equal when all but their content is."""

    kind: bytes
    mode: int
    uid: int = 0
    gid: int = 0
    target: str = ""
    device: tuple[int, int] = (0, 0)
    attributes: tuple[tuple[str, str], ...] = ()
    content: Content | None = field(default=None, compare=False)
    inode: tuple[int, str] | None = field(default=None, compare=False)
    """Layer and first path: paths with the same one are hard links to each other."""

    @property
    def is_folder(self) -> bool:
        """Whether other paths may lie below it."""
        return self.kind == tarfile.DIRTYPE

    @property
    def is_empty(self) -> bool:
        """Whether it is a file without content."""
        return self.content is not None and self.content.size == 0

    def same(self, other: Entry) -> bool:
        """Whether nothing that counts differs."""
        if self != other:
            return False
        if self.content is None or other.content is None:
            return self.content is other.content
        return self.content.same(other.content)


FOLDER = Entry(kind=tarfile.DIRTYPE, mode=0o755)


def read(archive: tarfile.TarFile, member: tarfile.TarInfo, layer: int) -> Entry:
    """The entry that a member of a layer stands for; a hard link is resolved by the caller."""
    kind = tarfile.REGTYPE if member.isreg() else member.type
    if kind not in _KINDS:
        raise tarfile.ReadError(f"{member.name} is of the unknown type {member.type!r}")
    attributes = tuple(
        sorted(
            (key, value)
            for key, value in member.pax_headers.items()
            if key.startswith("SCHILY.xattr.") and not key.startswith(_FOREIGN)
        )
    )
    is_file = kind == tarfile.REGTYPE
    return Entry(
        kind=kind,
        # The engines differ in whether they repeat the file type here.
        mode=0o777 if kind == tarfile.SYMTYPE else member.mode & 0o7777,
        uid=member.uid,
        gid=member.gid,
        target=member.linkname if kind == tarfile.SYMTYPE else "",
        device=(member.devmajor, member.devminor) if kind in {tarfile.CHRTYPE, tarfile.BLKTYPE} else (0, 0),
        attributes=attributes,
        content=Content(archive=archive, member=member) if is_file else None,
        inode=(layer, path_of(member.name)) if is_file else None,
    )


def path_of(name: str) -> str:
    """``./usr/bin/`` and ``/usr/bin`` are the same path; the root is empty."""
    parts = [part for part in name.split("/") if part not in {"", "."}]
    if ".." in parts:
        raise tarfile.ReadError(f"{name} points outside of the layer")
    return "/".join(parts)
