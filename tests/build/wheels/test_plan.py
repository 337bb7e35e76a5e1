"""Sizes of a lock from an index, the cache, and budgets."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from harness import cli
from harness.build import budgets, index, lockfile, sizes
from harness.build.lock import folder
from harness.errors import BudgetError, LockError
from harness.profiles import load, names

P40 = load("p40-sm61")
TARGET = P40.software.targets[0]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test writes into the repository's own cache."""
    monkeypatch.setattr(sizes, "root", lambda: tmp_path)


def pin(path: Path, name: str, version: str) -> lockfile.Pin:
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    text = f"{name}=={version} \\\n    --hash=sha256:{digest}\n"
    return lockfile.parse(text, file="x")[name]


def source(where: Path) -> Path:
    path = where / "old-1.0.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        member = tarfile.TarInfo("old-1.0/old.py")
        member.size = 5000
        archive.addfile(member, io.BytesIO(bytes(5000)))
    return path


@pytest.mark.parametrize("html", [False, True])
def test_sizes(make: Any, server: Any, html: bool) -> None:
    server.html = html
    big = make.wheel(server.folder, "big", "2", {"big/a.bin": bytes(range(256)) * 2000}, deflated=False)
    packed = make.wheel(server.folder, "packed", "1", {"packed/zeros": bytes(300_000)})
    old = source(server.folder)
    pins = [pin(packed, "packed", "1"), pin(old, "old", "1.0"), pin(big, "big", "2")]
    found = {one.name: one for one in sizes.measure(P40, TARGET, pins)}
    assert list(found) == ["big", "packed", "old"]
    for name, path in (("big", big), ("packed", packed)):
        with zipfile.ZipFile(path) as archive:
            unpacked = sum(member.file_size for member in archive.infolist())
        assert (found[name].download, found[name].disk) == (path.stat().st_size, unpacked)
    assert (found["old"].download, found["old"].disk) == (old.stat().st_size, 5000)
    server.asked.clear()
    assert sizes.measure(P40, TARGET, pins) == list(found.values())
    assert not server.asked


def test_a_damaged_cache_is_made_again(make: Any, server: Any, tmp_path: Path) -> None:
    pins = [pin(make.wheel(server.folder, "a", "1", {}), "a", "1")]
    first = sizes.measure(P40, TARGET, pins)
    (cache,) = (tmp_path / ".verlock" / "sizes").iterdir()
    for text in ("", "[]", '{"a": 1}', '{"a": {"name": "a"}}', "\0"):
        cache.write_text(text)
        assert sizes.measure(P40, TARGET, pins) == first


def test_all_that_cannot_be_told_is_named(make: Any, server: Any) -> None:
    good = make.wheel(server.folder, "good", "1", {})
    bad = server.folder / "bad-1-py3-none-any.whl"
    bad.write_bytes(b"no zip")
    other = make.wheel(server.folder, "other", "1", {})
    pins = [pin(good, "good", "1"), pin(bad, "bad", "1"), pin(good, "other", "1"), pin(good, "absent", "1")]
    assert other.exists()
    with pytest.raises(LockError) as caught:
        sizes.measure(P40, TARGET, pins)
    told = sorted(problem.what.split(" ")[0].rstrip(":") for problem in caught.value.problems)
    assert told == ["bad-1-py3-none-any.whl", "cannot", "other"]


def test_a_folder_of_wheels_needs_no_index(
    make: Any, server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    monkeypatch.setenv("UV_FIND_LINKS", str(wheels))
    path = make.wheel(wheels, "torch", "2.13.0+cpu", {"torch/a": bytes(9)})
    (found,) = sizes.measure(P40, TARGET, [pin(path, "torch", "2.13.0+cpu")])
    assert found.download == path.stat().st_size


def test_the_best_wheel_is_chosen() -> None:
    tags = index.target_tags(P40, TARGET)
    offers = [
        index.Offer(name=f"a-1-{tag}.whl", address=tag, sha256=digest)
        for tag, digest in [
            ("py3-none-any", "x"),
            ("cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64", "x"),
            ("cp311-cp311-manylinux_2_28_x86_64", "y"),
            ("cp311-cp311-manylinux_2_35_x86_64", "x"),
            ("cp311-cp311-manylinux_2_28_aarch64", "x"),
            ("cp312-cp312-manylinux_2_28_x86_64", "x"),
            ("cp311-cp311-win_amd64", "x"),
        ]
    ] + [
        index.Offer(name="a-1.tar.gz", address="source", sha256="x"),
        index.Offer(name="a-1-2.egg", address="egg"),
    ]

    def chosen(*hashes: str, version: str = "1") -> str | None:
        offer = index.choose(offers, version=version, hashes=hashes, tags=tags)
        return offer.address if offer else None

    assert chosen() == "cp311-cp311-manylinux_2_28_x86_64"
    assert chosen("x") == "cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64"
    assert chosen("z") is None
    assert chosen(version="2") is None
    assert index.choose(offers[-2:], version="1", hashes=(), tags=tags) == offers[-2]


def test_mac_wheels() -> None:
    mac = load("mac-m4-16g")
    tags = set(map(str, index.target_tags(mac, next(t for t in mac.software.targets if t.name == "macos"))))
    assert "cp311-cp311-macosx_14_0_arm64" in tags
    assert "cp311-cp311-macosx_15_0_arm64" not in tags


@given(st.text(), st.booleans())
def test_pages_are_read_or_refused(text: str, json_page: bool) -> None:
    with contextlib.suppress(LockError):
        index.parse(text, base="http://x/simple/a/", json_page=json_page)


@pytest.mark.parametrize(
    "page", ["[]", "{}", '{"files": [1]}', '{"files": [{"filename": "a"}]}', '{"files": 3}']
)
def test_a_page_that_is_none(page: str) -> None:
    with pytest.raises(LockError, match="an index page that is none"):
        index.parse(page, base="x", json_page=True)


# --- budgets ------------------------------------------------------------------------------------------------


def test_every_lock_has_a_budget() -> None:
    for name in names():
        for target in load(name).software.targets:
            assert not budgets.lock_problems(name, target.name, download=1, disk=1)


def test_over_budget() -> None:
    problems = budgets.lock_problems("cpu", "linux", download=10**10, disk=10**10)
    assert [problem.where for problem in problems] == [
        "docker/budgets.yaml:cpu.locks.linux.download",
        "docker/budgets.yaml:cpu.locks.linux.disk",
    ]
    assert "no budget" in budgets.lock_problems("cpu", "other", download=1, disk=1)[0].what
    assert not budgets.image_problems("cpu", archive=599_000_000)
    assert "600.0 MB" in budgets.image_problems("cpu", archive=600_000_001)[0].what
    assert not budgets.image_problems("p40-sm61", archive=10**12)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cpu: {locks: {linux: {download: 0, disk: 1, reason: x}}}", "cpu.locks.linux.download"),
        ("cpu: {locks: {linux: {download: 1, disk: 1}}}", "cpu.locks.linux.reason"),
        ("gpu: {locks: {}}", "no such profile: gpu"),
        ("[1", "cannot be read"),
    ],
)
def test_a_wrong_budget_file(
    text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "budgets.yaml"
    path.write_text(text)
    monkeypatch.setattr(budgets, "path", lambda: path)
    budgets.load.cache_clear()
    with pytest.raises(BudgetError, match=message):
        budgets.load()
    budgets.load.cache_clear()


def test_the_command(tmp_path: Path) -> None:
    """On the real lock, with a cache that says what an index would."""
    for target in P40.software.targets:
        pins = lockfile.parse((folder(P40) / target.file).read_text(encoding="utf-8"), file="x").values()
        cache = {
            sizes._key(one, target): {
                "name": one.name,
                "version": one.version,
                "file": "f",
                "download": 10**6,
                "disk": 3 * 10**6,
            }
            for one in pins
        }
        path = tmp_path / ".verlock" / "sizes" / f"{P40.name}-{target.name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(cache))
    run = CliRunner().invoke
    done = run(cli.app, ["plan", "p40-sm61", "--check", "--json"])
    document = json.loads(done.stdout)
    (only,) = document["targets"]
    count = len(only["packages"])
    assert (done.exit_code, only["download"], only["disk"]) == (0, count * 10**6, count * 3 * 10**6)
    text = run(cli.app, ["plan", "p40-sm61"]).stdout
    assert f"all {count} packages" in text
    path.write_text(json.dumps({key: one | {"download": 10**9} for key, one in cache.items()}))
    assert isinstance(run(cli.app, ["plan", "p40-sm61", "--check"]).exception, BudgetError)
    assert "over budget: download" in run(cli.app, ["plan", "p40-sm61"]).stdout
