"""The same image from every engine, another image after every change, and an error for every damage."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.build.image.entries import Entry
from harness.build.image.layers import apply, difference, write
from harness.build.image.normalise import Canonical, normalise
from harness.build.image.saved import open_saved
from harness.errors import DiskFullError, ImageError

NAME = "verlock:test"


def canonical(source: Path) -> Canonical:
    return normalise(source, source.with_name("out.tar"), name=NAME)


def test_two_engines_one_archive(tmp_path: Path, saving: ModuleType) -> None:
    one = canonical(saving.legacy(tmp_path / "a.tar", [saving.BASE, saving.TOP]))
    first = one.path.read_bytes()
    told = saving.told_otherwise(saving.BASE, saving.TOP)
    for listed in (True, False):
        other = canonical(saving.layout(tmp_path / "b.tar", told, listed=listed))
        assert (other.manifest, other.config, other.archive) == (one.manifest, one.config, one.archive)
        assert other.path.read_bytes() == first
    assert one.layers == 2


def test_what_is_canonical_stays_as_it_is(tmp_path: Path, saving: ModuleType) -> None:
    one = canonical(saving.legacy(tmp_path / "a.tar", [saving.BASE, saving.TOP]))
    two = normalise(one.path, tmp_path / "again.tar", name=NAME)
    assert replace(two, path=one.path) == one


def test_a_reader_that_makes_no_folders_can_unpack_it(tmp_path: Path, saving: ModuleType) -> None:
    """Apptainer's: a file whose folder has not come before is an error to it."""
    one = canonical(saving.legacy(tmp_path / "a.tar", [saving.BASE, saving.TOP]))
    there = {"."}
    with tarfile.open(one.path) as archive:
        for member in archive:
            assert str(Path(member.name).parent) in there, member.name
            there |= {member.name} if member.isdir() else set()
    assert there == {".", "blobs", "blobs/sha256"}


def test_an_archive_names_itself_in_both_ways(tmp_path: Path, saving: ModuleType) -> None:
    one = canonical(saving.legacy(tmp_path / "a.tar", [saving.BASE, saving.TOP]))
    with tarfile.open(one.path) as archive:
        names = archive.getnames()
        index = json.loads(archive.extractfile("index.json").read())  # type: ignore[union-attr]
        (listed,) = json.loads(archive.extractfile("manifest.json").read())  # type: ignore[union-attr]
        manifest = json.loads(archive.extractfile("blobs/" + one.manifest.replace(":", "/")).read())  # type: ignore[union-attr]
        config = json.loads(archive.extractfile(listed["Config"]).read())  # type: ignore[union-attr]
    assert names[-3:] == ["index.json", "manifest.json", "oci-layout"]
    assert index["manifests"][0]["digest"] == one.manifest
    assert index["manifests"][0]["annotations"]["io.containerd.image.name"] == f"docker.io/library/{NAME}"
    assert listed["RepoTags"] == [NAME]
    assert listed["Config"] == "blobs/" + one.config.replace(":", "/")
    assert [layer["digest"] for layer in manifest["layers"]] == config["rootfs"]["diff_ids"]
    assert set(config) == {"architecture", "config", "created", "history", "os", "rootfs"}
    assert len(config["history"]) == one.layers


def test_layers_are_the_least_that_changes(tmp_path: Path, saving: ModuleType) -> None:
    told = saving.told_otherwise(saving.BASE, saving.TOP)
    one = canonical(saving.layout(tmp_path / "b.tar", told))
    with open_saved(one.path) as saved:
        base, top = saved.layers
        assert top.getnames() == ["etc/one", "etc/.wh.two", "opt/new", "opt/new/file", "opt/.wh.old"]
        assert base.getnames()[0] == "bin"
        assert base.getmember("usr/bin/perl").isreg()
        assert base.getmember("usr/bin/perl5").linkname == "usr/bin/perl"
        assert {member.mtime for layer in saved.layers for member in layer} == {0}
        assert {member.uname for layer in saved.layers for member in layer} == {""}


Change = Callable[[Any, list[Any]], list[Any]]
PLANTED: dict[str, Change] = {
    "a byte": lambda s, top: [replace(top[0], data=b"chanGed"), *top[1:]],
    "a mode": lambda s, top: [replace(top[0], mode=0o600), *top[1:]],
    "an owner": lambda s, top: [replace(top[0], uid=7), *top[1:]],
    "a group": lambda s, top: [replace(top[0], gid=7), *top[1:]],
    "set-user-id": lambda s, top: [replace(top[0], mode=0o4644), *top[1:]],
    "a capability": lambda s, top: [
        replace(top[0], pax={"SCHILY.xattr.security.capability": "x"}),
        *top[1:],
    ],
    "a file more": lambda s, top: [*top, s.Item(name="etc/three")],
    "a file less": lambda s, top: [*top, s.whiteout("usr/bin/perl")],
    "a folder emptied": lambda s, top: [*top, s.Item(name="usr/bin/.wh..wh..opq")],
    "a link elsewhere": lambda s, top: [
        *top,
        s.Item(name="bin", kind=tarfile.SYMTYPE, link="opt", mode=0o777),
    ],
    "a folder that became a file": lambda s, top: [*top, s.Item(name="usr/bin", data=b"x")],
}


@pytest.mark.parametrize("planted", PLANTED)
def test_each_difference_changes_all_three_numbers(tmp_path: Path, saving: ModuleType, planted: str) -> None:
    one = canonical(saving.legacy(tmp_path / "a.tar", [saving.BASE, saving.TOP]))
    other = canonical(saving.legacy(tmp_path / "b.tar", [saving.BASE, PLANTED[planted](saving, saving.TOP)]))
    assert other.manifest != one.manifest
    assert other.config != one.config
    assert other.archive != one.archive


@pytest.mark.parametrize("key", ["User", "Env", "Labels", "Cmd"])
def test_each_setting_that_counts_changes_the_image(tmp_path: Path, saving: ModuleType, key: str) -> None:
    config = {**saving.CONFIG, "config": {**saving.CONFIG["config"], key: None}}
    one = canonical(saving.legacy(tmp_path / "a.tar", [saving.BASE]))
    other = canonical(saving.legacy(tmp_path / "b.tar", [saving.BASE], config))
    assert other.config != one.config


def test_what_an_engine_notes_about_itself_changes_nothing(tmp_path: Path, saving: ModuleType) -> None:
    noted = {**saving.CONFIG["config"], "Hostname": "f00", "ArgsEscaped": True, "OnBuild": None}
    config = {**saving.CONFIG, "config": noted, "container": "f00", "variant": ""}
    one = canonical(saving.legacy(tmp_path / "a.tar", [saving.BASE]))
    other = canonical(saving.legacy(tmp_path / "b.tar", [saving.BASE], config))
    assert other.archive == one.archive


def test_what_podman_leaves_behind_changes_nothing(tmp_path: Path, saving: ModuleType) -> None:
    names = ("etc/hostname", "etc/hosts", "etc/resolv.conf")
    left = [saving.Item(name=name, mode=0o755) for name in names]
    labels = {**saving.CONFIG["config"]["Labels"], "io.buildah.version": "1.28.2"}
    config = {**saving.CONFIG, "config": {**saving.CONFIG["config"], "Labels": labels}}
    one = canonical(saving.legacy(tmp_path / "a.tar", [saving.BASE, saving.TOP]))
    other = canonical(saving.legacy(tmp_path / "b.tar", [saving.BASE, [*saving.TOP, *left]], config))
    assert other.archive == one.archive
    meant = saving.Item(name="etc/hosts", data=b"127.0.0.1 localhost")
    third = canonical(saving.legacy(tmp_path / "c.tar", [saving.BASE, [*saving.TOP, meant]]))
    assert third.archive != one.archive


@pytest.mark.parametrize("write_down", ["legacy", "layout"])
def test_a_cut_anywhere_is_found_and_leaves_nothing(
    tmp_path: Path, saving: ModuleType, write_down: str
) -> None:
    source = getattr(saving, write_down)(tmp_path / "a.tar", [saving.BASE, saving.TOP])
    data = source.read_bytes()
    end = len(data.rstrip(b"\0"))
    for size in (0, 1, 511, 512, 700, end // 3, end // 2, end - 600, end, (end // 512 + 1) * 512):
        source.write_bytes(data[:size])
        with pytest.raises(ImageError, match=r"cut off|not a saved image"):
            canonical(source)
        assert [path.name for path in tmp_path.iterdir()] == ["a.tar"]


def test_a_changed_byte_is_found(tmp_path: Path, saving: ModuleType) -> None:
    source = saving.legacy(tmp_path / "a.tar", [saving.BASE])
    source.write_bytes(source.read_bytes().replace(b"perlperl", b"perlperL", 1))
    with pytest.raises(ImageError, match="the image's configuration says"):
        canonical(source)


@pytest.mark.parametrize("data", [b"", b"no archive at all" * 100, b"\x1f\x8b\x08\x00" + b"x" * 600])
def test_other_files_are_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.tar").write_bytes(data)
    with pytest.raises(ImageError, match=r"a\.tar"):
        canonical(tmp_path / "a.tar")
    with pytest.raises(ImageError, match="cannot be read"):
        canonical(tmp_path / "missing.tar")


def test_a_path_out_of_the_layer_is_refused(tmp_path: Path, saving: ModuleType) -> None:
    source = saving.legacy(tmp_path / "a.tar", [[saving.Item(name="../etc/passwd")]])
    with pytest.raises(ImageError, match="points outside"):
        canonical(source)


def test_a_full_disk_leaves_nothing(tmp_path: Path, saving: ModuleType, small_disk: Path) -> None:
    big = saving.Item(name="big", data=bytes(8 << 20))
    source = saving.legacy(tmp_path / "a.tar", [[big]])
    with pytest.raises(DiskFullError):
        normalise(source, small_disk / "out.tar", name=NAME)
    assert list(small_disk.iterdir()) == []


NAMES = st.sampled_from(["a", "b", "a/a", "a/b", "b/a", "a/a/a", "c"])
FILES = st.dictionaries(NAMES, st.none() | st.sampled_from([b"", b"1", b"2"]), max_size=7)


def plain(tree: dict[str, Entry]) -> dict[str, Any]:
    return {
        path: (entry, b"".join(entry.content.chunks()) if entry.content else None)
        for path, entry in tree.items()
    }


@settings(max_examples=150, deadline=None)
@given(below=FILES, above=FILES)
def test_a_canonical_layer_leads_from_any_tree_to_any_other(
    saving: ModuleType, below: dict[str, bytes | None], above: dict[str, bytes | None]
) -> None:
    with TemporaryDirectory() as folder, ExitStack() as stack:

        def opened(name: str, files: dict[str, bytes | None]) -> dict[str, Entry]:
            ordered = sorted(files.items())
            shown = [
                saving.folder(path)
                if data is None or any(p.startswith(path + "/") for p in files)
                else saving.Item(name=path, data=data)
                for path, data in ordered
            ]
            file = Path(folder, name)
            file.write_bytes(saving.tar(shown))
            return apply({}, stack.enter_context(tarfile.open(file)), 0)

        one, two = opened("one", below), opened("two", above)
        with tarfile.open(Path(folder, "layer"), "w", format=tarfile.PAX_FORMAT) as layer:
            write(difference(one, two), layer, epoch=0)
        with tarfile.open(Path(folder, "layer")) as layer:
            assert plain(apply(one, layer, 1)) == plain(two)
            if plain(one) == plain(two):
                assert layer.getnames() == []
