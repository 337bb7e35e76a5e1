"""What is on disk against RECORD: each changed, cut, grown or missing file is named, and no other."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.fingerprint import installed

Make = Callable[..., Path]
FILES = {
    "pkg/__init__.py": b"import os\n",
    "pkg/big.so": os.urandom(3 << 20),
    "pkg/lib/libx.so.1": b"\x7fELF",
    "pkg/include/x.h": b"int x;\n",
    "pkg/empty.py": b"",
    "../../../bin/tool": b"#!/usr/bin/python\n",
}


@pytest.fixture
def pkg(make: Make) -> installed.Distribution:
    return taken(make("pkg", files=FILES))


def taken(site: Path) -> installed.Distribution:
    found = installed.read("pkg", site)
    assert found is not None
    return found


CHANGES: dict[str, Callable[[Path], object]] = {
    "a byte": lambda path: path.write_bytes(bytes([path.read_bytes()[0] ^ 1]) + path.read_bytes()[1:]),
    "the last byte of a large file": lambda path: path.write_bytes(path.read_bytes()[:-1] + b"\0"),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "grown": lambda path: path.write_bytes(path.read_bytes() + b"\n"),
    "gone": lambda path: path.unlink(),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
    "another file under its name": lambda path: path.unlink() or path.symlink_to(os.devnull),
}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_file_is_named(pkg: installed.Distribution, change: str, threads: int) -> None:
    assert installed.differing(pkg, threads=threads) == []
    CHANGES[change](pkg.site / "pkg" / "big.so")
    assert installed.differing(pkg, threads=threads) == ["pkg/big.so"]


@pytest.mark.parametrize("name", FILES)
def test_each_listed_file_is_looked_at(pkg: installed.Distribution, name: str) -> None:
    path = pkg.site / name
    path.write_bytes(path.read_bytes() + b"x")
    assert installed.differing(pkg) == [name]


def test_what_has_no_hash_is_not_looked_at(pkg: installed.Distribution) -> None:
    """RECORD itself, and byte code, which differs from machine to machine."""
    assert {file.path for file in pkg.files} == {*FILES, "pkg-1.0.dist-info/METADATA"}


def test_which_files_a_process_loads(pkg: installed.Distribution) -> None:
    loaded = {file.path for file in pkg.files if file.loaded}
    assert loaded == {"pkg/__init__.py", "pkg/big.so", "pkg/lib/libx.so.1", "pkg/empty.py"}


def written(path: Path) -> None:
    path.write_bytes(path.read_bytes())


def replaced(path: Path) -> None:
    copy = path.with_suffix(".copy")
    shutil.copy2(path, copy)
    copy.replace(path)


@pytest.mark.parametrize("act", [written, replaced, Path.unlink])
def test_the_state_moves_with_each_write(pkg: installed.Distribution, act: Callable[[Path], object]) -> None:
    before = installed.state(pkg)
    (pkg.site / "pkg/big.so").read_bytes()
    os.link(pkg.site / "pkg/__init__.py", pkg.site / "linked")
    assert installed.state(pkg) == before, (
        "neither reading is a change, nor another environment from uv's cache"
    )
    act(pkg.site / "pkg/__init__.py")
    assert installed.state(pkg) != before


def test_the_state_is_of_this_kernel(pkg: installed.Distribution, monkeypatch: pytest.MonkeyPatch) -> None:
    """On another node an image's files may have the same numbers and times."""
    before = installed.state(pkg)
    monkeypatch.setattr(installed, "_kernel", lambda: "another boot")
    assert installed.state(pkg) != before


def test_the_content_is_the_wheels_wherever_it_is_installed(make: Make, tmp_path: Path) -> None:
    here = taken(make("pkg", files=FILES))
    other = FILES | {"../../../bin/tool": b"#!/elsewhere/python\n", "pkg-1.0.dist-info/INSTALLER": b"pip"}
    assert taken(make("pkg", files=other)).content == here.content
    assert taken(make("pkg", files=FILES | {"pkg/empty.py": b"#"})).content != here.content
    assert taken(make("pkg", files=FILES | {"pkg/new.py": b""})).content != here.content


def test_versions_are_those_of_the_folders(make: Make) -> None:
    make("a.b_c", "1.0+cpu")
    (make("z", "2.0rc1") / "z" / "not-1.0").mkdir()
    assert installed.versions(make("torch", "2.13.0+cpu")) == {
        "a-b-c": "1.0+cpu",
        "z": "2.0rc1",
        "torch": "2.13.0+cpu",
    }


def test_without_record_there_is_none(make: Make) -> None:
    site = make("pkg")
    assert installed.read("pk", site) is None
    (site / "pkg-1.0.dist-info" / "RECORD").unlink()
    assert installed.read("pkg", site) is None


@given(st.text())
def test_any_text_is_read_as_a_record(text: str) -> None:
    """A RECORD that was cut or overwritten gives files that differ, never a crash."""
    for file in installed.rows(text):
        assert file.algorithm or file.digest


@given(st.lists(st.tuples(st.text(min_size=1).filter(lambda t: t.isprintable()), st.binary(max_size=9))))
def test_what_is_written_is_read_back(content: list[tuple[str, bytes]]) -> None:
    import csv
    import io

    sink = io.StringIO()
    csv.writer(sink).writerows([(path, f"sha256={data.hex()}", len(data)) for path, data in content])
    assert [(f.path, f.digest) for f in installed.rows(sink.getvalue())] == [(p, d.hex()) for p, d in content]
