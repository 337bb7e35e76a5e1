"""The section table of a 64-bit ELF file, and nothing else of it.

Reads through a function ``read_at(offset, size)``, so that the same code serves an open file and the last
bytes of a stream: the table of a shared library stands at its end. Layout: System V ABI, chapter 4.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

HEADER_BYTES = 64
_SECTION = struct.Struct("<IIQQQQIIQQ")
_PROGBITS = 1
_ALLOCATED, _EXECUTABLE = 0x2, 0x4
_MOST_NAMES = 1 << 20  # bytes; libtorch_cuda.so has 600

ReadAt = Callable[[int, int], bytes]


class ElfError(ValueError):
    """A damaged ELF file: a part is missing, or its numbers contradict each other."""


class NotElfError(ElfError):
    """Something else than a 64-bit little-endian ELF file: a linker script, a library for another machine."""


@dataclass(frozen=True, kw_only=True)
class Section:
    """One section: where it is in the file, and whether it is loaded as data."""

    name: str
    offset: int
    """Bytes from the start of the file."""
    size: int
    """Bytes in the file."""
    data: bool
    """Loaded with the library, not executable, and not only reserved (``.bss``)."""


def check(head: bytes) -> None:
    """Refuse what is not a 64-bit little-endian ELF file; ``head`` is its first 64 bytes.

    Raises:
        NotElfError: it is something else.
        ElfError: the file ends inside its own header.
    """
    if head[:4] != b"\x7fELF":
        raise NotElfError("not an ELF file")
    if len(head) < HEADER_BYTES:
        raise ElfError("truncated ELF header")
    if head[4] != 2 or head[5] != 1:
        raise NotElfError("not a 64-bit little-endian ELF file")


def sections(head: bytes, read_at: ReadAt) -> tuple[Section, ...]:
    """All sections, by the file's own table; none where it has no table, which a stripped library may lack.

    Args:
        head: the first 64 bytes.
        read_at: returns ``size`` bytes at ``offset``, or fewer where the file ends.

    Raises:
        ElfError: a truncated table, or one whose numbers contradict each other.
    """
    check(head)
    (offset,) = struct.unpack_from("<Q", head, 40)
    entry_bytes, count, names_index = struct.unpack_from("<HHH", head, 58)
    if not offset or not count:
        return ()
    if names_index >= count:
        raise ElfError("a section table without names")
    if entry_bytes != _SECTION.size:
        raise ElfError(f"section entries of {entry_bytes} bytes")
    table = read_at(offset, count * entry_bytes)
    if len(table) != count * entry_bytes:
        raise ElfError("truncated section table")
    rows = list(_SECTION.iter_unpack(table))
    names = read_at(rows[names_index][4], min(rows[names_index][5], _MOST_NAMES))
    return tuple(
        Section(
            name=_name(names, row[0]),
            offset=row[4],
            size=row[5],
            data=row[1] == _PROGBITS and bool(row[2] & _ALLOCATED) and not row[2] & _EXECUTABLE,
        )
        for row in rows
    )


def _name(names: bytes, start: int) -> str:
    end = names.find(b"\0", start)
    return names[start : end if end >= 0 else len(names)].decode("ascii", "replace")
