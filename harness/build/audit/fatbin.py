"""CUDA's fat binaries: containers of the same kernels, compiled for several architectures.

NVIDIA does not document the format. What is used here was read off real libraries and agrees with
cuobjdump (tests/build/test_audit_cuobjdump.py). A container is a header (magic, version 1, header size 16,
size of what follows) and entries. An entry's header says what it is and for which architecture; it is
never compressed, though its payload usually is.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

MAGIC = struct.pack("<I", 0xBA55ED50)
CONTAINER = struct.Struct("<4sHHQ")
ENTRY_BYTES = 48
"""As much of an entry's header as is read; it is 64 to 128 bytes long."""
_ENTRY = struct.Struct("<HHIQIIHHIIIQ")
_LONGEST_HEADER = 4096
_KINDS: dict[int, Literal["ptx", "sass"]] = {1: "ptx", 2: "sass"}
_ACCELERATED = 1 << 20  # sm_90a: runs on exactly that architecture
_FAMILY = 1 << 21  # sm_100f: runs on that architecture and its successors of the same major number

Skip = Callable[[int], None]
Read = Callable[[int], bytes]


class FatbinError(ValueError):
    """Bytes that look like a container and are none, or one that is cut off."""


@dataclass(frozen=True, order=True)
class Code:
    """One compiled form of the kernels of a container."""

    architecture: int
    """As in sm_61: ten times the major number and the minor one."""
    kind: Literal["ptx", "sass", "other"]
    """``other`` is compiler-internal (kind 8: input of link-time optimisation); no driver loads it."""
    suffix: Literal["", "a", "f"] = ""

    def __str__(self) -> str:
        """As NVIDIA's tools name it."""
        prefix = {"ptx": "compute", "sass": "sm", "other": "ir"}[self.kind]
        return f"{prefix}_{self.architecture}{self.suffix}"

    def runs_on(self, architecture: int) -> bool:
        """Whether a card of this architecture can load it.

        SASS runs on the same major number from its own minor number on (CUDA programming guide, binary
        compatibility); PTX of the same or an older architecture is compiled by the driver.
        """
        if self.kind == "other":
            return False
        if self.suffix == "a":
            return architecture == self.architecture
        older = self.architecture <= architecture
        if self.kind == "ptx" and not self.suffix:
            return older
        return older and self.architecture // 10 == architecture // 10


Container = frozenset[Code]


def body_bytes(header: bytes, *, remaining: int) -> int:
    """Size of what follows a container's 16-byte header; ``remaining`` is what the file still has after it.

    Raises:
        FatbinError: it is no such header, or the file ends before the container does.
    """
    if len(header) < CONTAINER.size:
        raise FatbinError("truncated header")
    magic, version, header_bytes, size = CONTAINER.unpack(header)
    if (magic, version, header_bytes) != (MAGIC, 1, CONTAINER.size):
        raise FatbinError("no container header")
    if size > remaining:
        raise FatbinError("longer than the file")
    return int(size)


def entries(size: int, read: Read, skip: Skip) -> Container:
    """The entries of a container whose body of ``size`` bytes is read next.

    Raises:
        FatbinError: an entry that is longer than the container, or has an impossible header.
    """
    found: set[Code] = set()
    while size >= ENTRY_BYTES:
        header = read(ENTRY_BYTES)
        if len(header) < ENTRY_BYTES:
            raise FatbinError("truncated entry")
        kind, _, header_bytes, payload, *_, architecture, _, _, flags = _ENTRY.unpack(header)
        total = header_bytes + payload
        if not ENTRY_BYTES <= header_bytes <= _LONGEST_HEADER or total > size:
            raise FatbinError("an entry that does not fit its container")
        found.add(Code(architecture, _KINDS.get(kind, "other"), _suffix(flags)))
        skip(total - ENTRY_BYTES)
        size -= total
    skip(size)
    return frozenset(found)


def _suffix(flags: int) -> Literal["", "a", "f"]:
    if flags & _ACCELERATED:
        return "a"
    return "f" if flags & _FAMILY else ""
