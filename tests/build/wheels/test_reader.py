"""The reader: what it finds in libraries made for it, and that nothing makes it crash or hang."""

from __future__ import annotations

import contextlib
import io
import struct
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.build.audit import elf, fatbin, library

SM60, SM90A, PTX70, IR = (2, 60, ""), (2, 90, "a"), (1, 70, ""), (8, 50, "")


def read(data: bytes, *, jumps: bool = True, **more: Any) -> library.Library:
    return library.read("x.so", io.BytesIO(data), size=len(data), jumps=jumps, **more)


def shown(found: library.Library) -> Counter[str]:
    return Counter({" ".join(map(str, sorted(held))): count for held, count in found.containers.items()})


@pytest.mark.parametrize("jumps", [True, False])
def test_counts_containers(make: Any, jumps: bool) -> None:
    data = make.cuda_library([SM60, SM90A], [SM60, SM90A], [PTX70], [IR], [(2, 100, "f")])
    found = read(data, jumps=jumps)
    assert shown(found) == {"sm_60 sm_90a": 2, "compute_70": 1, "ir_50": 1, "sm_100f": 1}
    assert found.complete
    assert list(map(str, found.codes)) == ["ir_50", "sm_60", "compute_70", "sm_90a", "sm_100f"]


@pytest.mark.parametrize("jumps", [True, False])
def test_containers_in_data_count_and_relocatable_ones_do_not(make: Any, jumps: bool) -> None:
    data = make.library(
        {
            "__nv_relfatbin": make.container((2, 50, "")),
            ".nv_fatbin": make.container(SM60),
            ".data": bytes(64) + make.container(PTX70),
        }
    )
    assert shown(read(data, jumps=jumps)) == {"sm_60": 1, "compute_70": 1}


def test_a_stream_longer_than_the_window(make: Any) -> None:
    data = make.library(
        {
            "__nv_relfatbin": make.container((2, 50, "")),
            ".text": bytes(9 << 20),
            ".nv_fatbin": make.container(SM60) * 3,
        }
    )
    for jumps in (True, False):
        assert shown(read(data, jumps=jumps)) == {"sm_60": 3}


def test_a_sample_says_that_it_is_one(make: Any) -> None:
    data = make.cuda_library(*([SM60] for _ in range(9))) + bytes(4 << 20)
    found = read(data, jumps=False, stop=lambda count: count >= 4)
    assert shown(found) == {"sm_60": 4}
    assert not found.complete


def test_a_library_without_a_section_table_is_searched_whole(make: Any) -> None:
    data = make.library({".nv_fatbin": make.container(SM60)}, table=False)
    assert shown(read(data)) == {"sm_60": 1}


def test_the_magic_alone_is_no_container(make: Any) -> None:
    lone = fatbin.MAGIC + bytes(12)  # as in code that compares with it
    unaligned = bytes(4) + make.container(SM60)
    data = make.library({".data": lone + unaligned, ".nv_fatbin": make.container(PTX70)})
    assert shown(read(data)) == {"compute_70": 1}


@pytest.mark.parametrize(
    "head",
    [b"", b"#!/bin/sh\n", b"\x7fELF\1\1\1" + bytes(57), b"\x7fELF\2\2\1" + bytes(57), b"GROUP ( libc.so.6 )"],
)
def test_other_files_are_refused_as_such(head: bytes) -> None:
    with pytest.raises(elf.NotElfError):
        read(head)


def test_a_truncated_library(make: Any) -> None:
    data = make.cuda_library([SM60], [SM60])
    for cut in (20, 64, len(data) // 2, len(data) - 1):
        with pytest.raises(elf.ElfError):
            read(data[:cut])
    with pytest.raises(elf.ElfError, match="without names"):
        read(data[:62] + struct.pack("<H", 999) + data[64:])


@given(st.binary(max_size=400), st.booleans())
def test_random_bytes(data: bytes, jumps: bool) -> None:
    with contextlib.suppress(elf.ElfError):
        read(b"\x7fELF\2\1\1" + data, jumps=jumps)
    if len(data) >= 16:
        with contextlib.suppress(fatbin.FatbinError):
            fatbin.entries(len(data), io.BytesIO(data).read, lambda count: None)


@pytest.mark.parametrize("jumps", [True, False])
def test_an_offset_that_no_file_has(make: Any, jumps: bool) -> None:
    """The section table's place in the ELF header, turned into the largest number there is."""
    whole = bytearray(make.cuda_library([SM60], [], [], filler=8))
    whole[0x28:0x30] = b"\xff" * 8
    with contextlib.suppress(elf.ElfError):  # a stream is searched without the table
        assert sum(read(bytes(whole), jumps=jumps).containers.values()) <= 1


@given(st.data())
def test_one_changed_byte(make: Any, data: st.DataObject) -> None:
    whole = bytearray(make.cuda_library([SM60, SM90A], [PTX70], [IR], filler=8))
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] = data.draw(st.integers(0, 255))
    for jumps in (True, False):
        with contextlib.suppress(elf.ElfError):
            assert sum(read(bytes(whole), jumps=jumps).containers.values()) <= 40


@given(
    st.lists(
        st.lists(
            st.tuples(st.sampled_from([1, 2, 8]), st.integers(30, 130), st.sampled_from(["", "a", "f"])),
            min_size=1,
        ),
        max_size=8,
    )
)
def test_what_is_written_is_read(make: Any, containers: list[list[tuple[int, int, str]]]) -> None:
    kinds = {1: "ptx", 2: "sass", 8: "other"}
    expected = Counter(
        frozenset(fatbin.Code(number, kinds[kind], suffix) for kind, number, suffix in one)  # type: ignore[arg-type]
        for one in containers
    )
    for jumps in (True, False):
        assert read(make.cuda_library(*containers), jumps=jumps).containers == expected
