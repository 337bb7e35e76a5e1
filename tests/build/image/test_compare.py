"""Each planted difference is found at its path and classed by its cause."""

from __future__ import annotations

import io
import os
import tarfile
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from harness.build.image.compare import compare
from harness.build.image.normalise import normalise
from harness.errors import ImageError


def archive(saving: ModuleType, folder: Path, name: str, more: list[Any], **config: Any) -> Path:
    """The small image with ``more`` in its top layer, canonical as `prove` has it."""
    settings = {**saving.CONFIG, "config": {**saving.CONFIG["config"], **config}}
    raw = saving.legacy(folder / f"raw-{name}.tar", [saving.BASE, [*saving.TOP, *more]], settings)
    return normalise(raw, folder / f"{name}.tar", name="verlock:test").path


CASES = [
    ("opt/new/__pycache__/a.cpython-311.pyc", b"\x01\x02", b"\x01\x03", "byte code"),
    ("var/log/dpkg.log", b"a", b"b", "log"),
    ("var/log/apt/history", b"a", b"b", "log"),
    ("opt/build.log", b"a", b"b", "log"),
    ("var/cache/ldconfig/aux-cache", b"a", b"b", "cache"),
    ("root/.cache/uv/x", b"a", b"b", "cache"),
    ("opt/built", b"built 2026-11-30T11:02:03Z here\n", b"built 2026-11-30T11:09:00Z here\n", "time stamp"),
    ("opt/stamp", b"1764500000\n", b"1764500123\n", "time stamp"),
    ("opt/day", b"Mon Nov 30 11:02:03 UTC 2026\n", b"Tue Dec  1 01:02:03 UTC 2026\n", "time stamp"),
    ("opt/other", b"one", b"two", "unknown"),
]


@pytest.mark.parametrize(("path", "before", "after", "kind"), CASES)
def test_a_changed_file_has_its_class(
    tmp_path: Path, saving: ModuleType, path: str, before: bytes, after: bytes, kind: str
) -> None:
    one = archive(saving, tmp_path, "one", [saving.Item(name=path, data=before)])
    two = archive(saving, tmp_path, "two", [saving.Item(name=path, data=after)])
    (found,) = compare(one, two)
    assert (found.path, found.kind, found.layer) == (path, kind, 1)


@pytest.mark.parametrize("change", [{"uid": 5}, {"gid": 5}, {"mode": 0o4755}])
def test_an_owner_or_a_mode(tmp_path: Path, saving: ModuleType, change: dict[str, int]) -> None:
    item = saving.Item(name="opt/tool", data=b"x")
    one = archive(saving, tmp_path, "one", [item])
    two = archive(saving, tmp_path, "two", [replace(item, **change)])
    (found,) = compare(one, two)
    assert (found.path, found.kind) == ("opt/tool", "ownership")
    assert "0:0 0644, then" in found.detail


def test_a_file_that_is_only_in_one(tmp_path: Path, saving: ModuleType) -> None:
    one = archive(saving, tmp_path, "one", [])
    two = archive(saving, tmp_path, "two", [saving.Item(name="opt/x.log", data=b"x"), saving.whiteout("usr")])
    found = {difference.path: difference for difference in compare(one, two)}
    assert set(found) == {"opt/x.log", "usr", "usr/bin", "usr/bin/perl", "usr/bin/perl5"}
    assert (found["opt/x.log"].kind, found["opt/x.log"].detail) == ("log", "only in the second")
    assert found["usr/bin/perl"].detail == "only in the first"


def test_a_link_and_a_setting(tmp_path: Path, saving: ModuleType) -> None:
    link = saving.Item(name="opt/link", kind=tarfile.SYMTYPE, link="a", mode=0o777)
    one = archive(saving, tmp_path, "one", [link], Labels={"built": "2026-01-01"})
    two = archive(saving, tmp_path, "two", [replace(link, link="b")], Labels={"built": "2026-02-02"})
    assert [(found.path, found.kind) for found in compare(one, two)] == [
        ("config.Labels", "time stamp"),
        ("opt/link", "unknown"),
    ]


def test_the_same_image_from_two_engines_differs_in_nothing(tmp_path: Path, saving: ModuleType) -> None:
    one = saving.legacy(tmp_path / "one.tar", [saving.BASE, saving.TOP])
    two = archive(saving, tmp_path, "two", [])
    assert [found.path for found in compare(one, two)] == ["created"]


def test_a_broken_archive_is_named(tmp_path: Path, saving: ModuleType) -> None:
    one = archive(saving, tmp_path, "one", [])
    cut = tmp_path / "cut.tar"
    cut.write_bytes(one.read_bytes()[:-2048])
    with pytest.raises(ImageError, match=r"cut\.tar.*cut off"):
        compare(one, cut)


def test_a_pipe_is_refused_before_it_is_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(ImageError, match="is no file"):
        compare(pipe, pipe)


@pytest.mark.parametrize(
    ("members", "why"),
    [
        ({"etc/hosts": b"x"}, "there is neither a manifest.json nor an index.json in it"),
        ({"manifest.json": b"{"}, "a part that must be JSON is not"),
        ({"manifest.json": b"\x80{}"}, "a part that must be JSON is no text"),
        ({"manifest.json": b"[]"}, "the archive holds 0 images"),
        ({"manifest.json": b"7"}, "another form than an image's"),
        ({"manifest.json": b'[{"Layers": []}]'}, "there is no Config in it"),
        ({"manifest.json": b'[{"Config": "c.json", "Layers": []}]'}, "there is no c.json in it"),
    ],
)
def test_an_archive_of_something_else_is_told_in_words(
    tmp_path: Path, members: dict[str, bytes], why: str
) -> None:
    """No exception's name, and no quoted key alone."""
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as archive:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    with pytest.raises(ImageError) as caught:
        compare(path, path)
    (problem,) = caught.value.problems
    assert why in str(problem.why)
    assert "Error" not in str(problem.why)
    assert problem.todo
