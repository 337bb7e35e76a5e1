"""The base's lock: made from what apt and dpkg say, refused where they differ, and free of hosts."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from harness.build import base, base_lock
from harness.build.base_lock import Package
from harness.build.image import make
from harness.build.lock import folder
from harness.console import Output
from harness.errors import BuildError, LockError, ToolMissingError
from harness.profiles import load, names

INDEX = """\
Package: libc6
Version: 2.36-9
Architecture: amd64
Description: GNU C Library
 Package: not-a-package
SHA256: {a}

Package: python3
Version: 3.11.2-1
Architecture: amd64
SHA256: {b}
"""
STATUS = """\
Package: python3
Status: install ok installed
Architecture: amd64
Version: 3.11.2-1
Description: x
 .
 more

Package: libc6
Status: install ok installed
Architecture: amd64
Version: 2.36-9

Package: gone
Status: deinstall ok config-files
Architecture: amd64
Version: 1
"""
LIBC = Package(name="libc6", version="2.36-9", machine="amd64", sha256="a" * 64)
PYTHON = Package(name="python3", version="3.11.2-1", machine="amd64", sha256="b" * 64)


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    (tmp_path / "mirror_main_Packages").write_text(INDEX.format(a="a" * 64, b="b" * 64))
    (tmp_path / "status").write_text(STATUS)
    return tmp_path


def test_installed_packages_have_the_digests_of_the_index(notes: Path) -> None:
    assert base_lock.installed(notes) == (LIBC, PYTHON)


def test_a_package_that_no_index_has_is_refused(notes: Path) -> None:
    (notes / "status").write_text(STATUS.replace("2.36-9", "2.36-8"))
    with pytest.raises(BuildError, match=r"libc6 2\.36-8 amd64"):
        base_lock.installed(notes)


def test_a_lock_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / base_lock.FILE
    path.write_text(base_lock.text(load("cpu"), "amd64", [PYTHON, LIBC]))
    assert base_lock.read(path) == (LIBC, PYTHON)
    path.write_text(path.read_text().replace("2.36-9", "2.36-8"))
    with pytest.raises(LockError, match="altered"):
        base_lock.read(path)
    with pytest.raises(LockError, match="no lock of the base") as caught:
        base_lock.read(tmp_path / "cpu" / base_lock.FILE)
    assert caught.match("verlock build cpu --update-base")


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ((LIBC,), "python3 is not .*\n.*locked: 3.11.2-1; the mirror gave: nothing"),
        ((LIBC, PYTHON, Package(name="x", version="1", machine="all", sha256="c" * 64)), "locked: nothing"),
        (
            (LIBC, Package(name="python3", version="3.11.2-2", machine="amd64", sha256="c" * 64)),
            "locked: 3.11.2-1; the mirror gave: 3.11.2-2",
        ),
        (
            (LIBC, Package(name="python3", version="3.11.2-1", machine="amd64", sha256="c" * 64)),
            "sha256:bbb.*sha256:ccc",
        ),
    ],
)
def test_other_packages_are_refused_and_named(tmp_path: Path, found: tuple[Package, ...], said: str) -> None:
    with pytest.raises(BuildError, match=said) as caught:
        base_lock.compare((LIBC, PYTHON), found, tmp_path / "base.lock", load("cpu"))
    assert len(caught.value.problems) == 1
    assert caught.match("--update-base")


@pytest.mark.skipif(os.getuid() != 0, reason="only root's bootstrap mounts this machine's folders")
def test_what_a_killed_bootstrap_mounted_goes_with_it(tmp_path: Path) -> None:
    """The prefix of the command line before a program that mounts and is killed; without it, as proof."""
    precious = tmp_path / "precious"
    precious.mkdir()
    prefix = base.command(load("cpu"), tmp_path / "t", notes=tmp_path, own_sources=False)
    apart = prefix[: prefix.index("mmdebstrap")]
    for words, remains in ((apart, False), ([], True)):
        target = tmp_path / ".base.x"
        target.mkdir(exist_ok=True)
        script = f"mount --bind {precious} {target}; touch {precious}/mounted; sleep 60"
        with subprocess.Popen([*words, "sh", "-c", script], start_new_session=True) as killed:
            while not (precious / "mounted").exists():
                time.sleep(0.02)
            os.killpg(killed.pid, signal.SIGKILL)
        assert (target / "mounted").exists() is remains
        if remains:
            with (
                pytest.raises(BuildError, match="left folders of this machine mounted"),
                make.alone(tmp_path),
            ):
                pytest.fail("went on")
            subprocess.run(["umount", target], check=True)
        assert (precious / "mounted").exists()
        (precious / "mounted").unlink()


def test_what_a_killed_build_left_is_removed_by_the_next(tmp_path: Path) -> None:
    home = tmp_path / "cpu"
    (home / ".base.1" / "mmdebstrap.x").mkdir(parents=True)
    (home / ".build.2").mkdir()
    (home / ".saved.3.tar").touch()
    (home / "image.tar").touch()
    with make.alone(home):
        assert [path.name for path in home.iterdir()] == ["image.tar"]


@pytest.mark.parametrize("name", [name for name in names() if (folder(load(name)) / base_lock.FILE).exists()])
def test_a_committed_lock_has_the_profile_s_packages_and_no_host(name: str) -> None:
    profile = load(name)
    path = folder(profile) / base_lock.FILE
    assert {package.name for package in base_lock.read(path)} >= set(profile.image.packages)
    assert "://" not in path.read_text()


def test_the_bootstrap_leaves_nothing_of_this_machine(tmp_path: Path) -> None:
    command = base.command(load("cpu"), tmp_path / "tree.tar", notes=tmp_path, own_sources=True)
    clean = command[-4]
    for path in ("etc/hostname", "etc/resolv.conf", "etc/apt/sources.list.d/*", "var/log/apt"):
        assert f'"$1"/{path}' in clean
    assert command[-1] == "-"


def test_sources_of_other_releases_are_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = "deb m://x bookworm main\ndeb m://x bookworm-security main\n"
    done = subprocess.CompletedProcess([], 0, stdout=f"{ours}deb m://y stable cloud\n{ours}")
    monkeypatch.setattr(base.subprocess, "run", lambda *_, **__: done)
    monkeypatch.setattr(base.shutil, "which", lambda _: "/usr/bin/apt-get")
    assert base.own_sources("bookworm") == ours


def test_a_missing_tool_has_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolMissingError, match="apt-get install mmdebstrap"):
        base.prepare(load("cpu"), tmp_path / "home", update=False, fresh=False, output=Output())
    assert not (tmp_path / "home").exists()
