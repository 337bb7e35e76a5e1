"""One shared library: a single pass from its start to its end, in bounded memory.

An open file is read by its section table, and payloads are jumped over. A deflated member of a wheel
cannot be jumped about in, and its section table comes last: it is searched for container headers as it
is inflated, and sorted into sections afterwards.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

from harness.build.audit import elf, fatbin
from harness.build.audit.tape import Tape

# Device code that is still to be linked is in the file for nvlink; the driver never sees it.
RELOCATABLE = "__nv_relfatbin"

Stop = Callable[[int], bool]
"""Given how many containers were found so far: whether that is enough."""


@dataclass(frozen=True, kw_only=True)
class Library:
    """What one library holds for GPUs."""

    name: str
    """Its path inside the wheel or the environment."""
    containers: dict[fatbin.Container, int]
    """How often each set of architectures occurs."""
    complete: bool = True
    """False for a sample: reading stopped before the library's end."""

    @property
    def codes(self) -> list[fatbin.Code]:
        """Everything that occurs, sorted."""
        return sorted({code for container in self.containers for code in container})


@dataclass(frozen=True)
class _Found:
    offset: int
    container: fatbin.Container


def read(name: str, file: BinaryIO, *, size: int, jumps: bool, stop: Stop | None = None) -> Library:
    """Read a library.

    Args:
        name: how it is called in the result.
        file: at its first byte.
        size: its length in bytes.
        jumps: whether ``seek`` is cheap, as in an open file; not in a deflated member of a wheel.
        stop: ends the reading early; the result is then a sample.

    Raises:
        elf.NotElfError: not a 64-bit ELF file.
        elf.ElfError: a damaged one.
    """
    tape = Tape(file, size=size, jumps=jumps)
    head = tape.read(elf.HEADER_BYTES)
    elf.check(head)
    spans = (_spans(head, tape.read_at) if jumps else []) or [(0, size)]
    found: list[_Found] = []
    for one in _all(tape, spans):
        found.append(one)
        if stop and stop(len(found)):
            break
    complete = not (stop and stop(len(found))) if jumps else tape.end == size
    if complete and not jumps:
        found = _loadable(found, head, tape)
    return Library(name=name, containers=dict(Counter(one.container for one in found)), complete=complete)


def _spans(head: bytes, read_at: elf.ReadAt) -> list[tuple[int, int]]:
    """Where containers can be; cuFFT keeps them in ``.data``, all others in ``.nv_fatbin``."""
    return sorted(
        (section.offset, section.offset + section.size)
        for section in elf.sections(head, read_at)
        if section.data and section.name != RELOCATABLE
    )


def _loadable(found: list[_Found], head: bytes, tape: Tape) -> list[_Found]:
    """Without the device code that is still to be linked; all of it where the file has no section table."""
    try:
        table = elf.sections(head, tape.read_at)
    except elf.ElfError:
        return found
    spans = [(one.offset, one.offset + one.size) for one in table if one.name == RELOCATABLE]
    return [one for one in found if not any(start <= one.offset < end for start, end in spans)]


def _all(tape: Tape, spans: list[tuple[int, int]]) -> Iterator[_Found]:
    for start, end in spans:
        tape.go(start)
        yield from _containers(tape, end)


def _containers(tape: Tape, end: int) -> Iterator[_Found]:
    """Containers from the tape's position to ``end``, which is bytes from the file's start."""
    while (offset := tape.find(fatbin.MAGIC, end)) is not None:
        after = offset + len(fatbin.MAGIC)
        try:
            body = fatbin.body_bytes(
                tape.read(fatbin.CONTAINER.size), remaining=end - offset - fatbin.CONTAINER.size
            )
            container = fatbin.entries(body, tape.read, tape.skip)
        except fatbin.FatbinError:
            tape.go(after)
            continue
        if container:
            yield _Found(offset, container)
