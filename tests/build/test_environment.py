"""Environments from locks, by real uv: made once, never half, never from anything but the lock.

They are made in a repository in miniature, whose lock holds two small wheels.
"""

from __future__ import annotations

import hashlib
import http.server
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness.build import environment, lockfile
from harness.console import Output
from harness.errors import DiskFullError, LockError, WrongMachineError
from harness.profiles import load, root

OUTPUT = Output(as_json=True)
VERSION = "9.9.9+tiny"
PROFILE = """\
extends: cpu
short: tiny
summary: For tests.
software:
  targets:
    - name: linux
      file: requirements.lock
      system: linux
      machines: [x86_64, aarch64]
      python_platform: x86_64-manylinux_2_28
      torch:
        version: {version}
        index: https://torch.invalid/whl
        hashes: [{digest}]
"""


@dataclass(frozen=True, kw_only=True)
class Miniature:
    """Where things are in the miniature."""

    root: Path
    wheels: Path
    lock: Path
    envs: Path

    def seal(self, body: str) -> None:
        """Write the lock anew, as its generator would."""
        self.lock.write_text(lockfile.sealed(body, head=["tiny"]), encoding="utf-8")

    def alter(self, name: str, number: int) -> None:
        """Change one digit of one hash of a package, as a slip of the hand would."""
        pin = lockfile.parse(self.lock.read_text(encoding="utf-8"), file="tiny")[name]
        digest = pin.hashes[number]
        other = digest[:-1] + ("0" if digest[-1] != "0" else "1")
        text = self.lock.read_text(encoding="utf-8")
        self.lock.write_text(text.replace(digest, other), encoding="utf-8")


@pytest.fixture
def tiny(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_wheel: Callable[[Path, str, str], Path]
) -> Miniature:
    """The miniature, with every source but its own folder of wheels left as the machine has it."""
    committed = root() / "docker" / "rendered" / "cpu"
    mini = Miniature(
        root=tmp_path / "repo",
        wheels=tmp_path / "wheels",
        lock=tmp_path / "repo" / "docker" / "rendered" / "tiny" / "requirements.lock",
        envs=tmp_path / "envs",
    )
    mini.lock.parent.mkdir(parents=True)
    mini.wheels.mkdir()
    shutil.copytree(root() / "profiles", mini.root / "profiles")
    digest = hashlib.sha256(make_wheel(mini.wheels, "torch", VERSION).read_bytes()).hexdigest()
    setuptools = lockfile.parse((committed / "build.lock").read_text(encoding="utf-8"), file="")["setuptools"]
    mini.seal(f"torch=={VERSION} \\\n    --hash=sha256:{digest}\n{setuptools.text}")
    shutil.copy(committed / "build.lock", mini.lock.parent)
    (mini.root / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'
        '[project]\nname = "tiny"\nversion = "1"\n[tool.setuptools]\npy-modules = []\n'
    )
    (mini.root / "profiles" / "tiny.yaml").write_text(PROFILE.format(version=VERSION, digest=digest))
    monkeypatch.setenv("VERLOCK_ROOT", str(mini.root))
    monkeypatch.setenv("VERLOCK_ENVS", str(mini.envs))
    monkeypatch.setenv("UV_FIND_LINKS", str(mini.wheels))
    return mini


def ensure() -> Path:
    return environment.ensure(load("tiny"), output=OUTPUT)


def environments(tiny: Miniature) -> list[str]:
    return sorted(path.name for path in tiny.envs.iterdir() if path.is_dir()) if tiny.envs.exists() else []


def test_made_once_and_found_again(tiny: Miniature) -> None:
    python = ensure()
    shown = subprocess.check_output([python, "-c", "import torch; print(torch.version)"], text=True)
    assert shown.strip() == VERSION
    marker = json.loads((python.parents[1] / environment.MARKER).read_text())
    assert (marker["profile"], marker["target"]) == ("tiny", "linux")
    before = python.parents[1].stat().st_mtime_ns
    assert ensure() == python
    assert python.parents[1].stat().st_mtime_ns == before


def test_holds_the_lock_and_verlock_and_nothing_else(tiny: Miniature) -> None:
    code = "from importlib.metadata import distributions as d; print(*sorted(x.name for x in d()))"
    shown = subprocess.check_output([ensure(), "-I", "-c", code], text=True)
    assert shown.split() == ["setuptools", "tiny", "torch"]


def test_without_marker_it_is_made_anew(tiny: Miniature) -> None:
    python = ensure()
    (python.parents[1] / environment.MARKER).unlink()
    (python.parents[1] / "left-over").touch()
    assert ensure() == python
    assert not (python.parents[1] / "left-over").exists()


@pytest.mark.parametrize(("name", "number"), [("torch", 0), ("setuptools", 0), ("setuptools", 1)])
def test_one_altered_digit(tiny: Miniature, name: str, number: int) -> None:
    """Whichever hash it is: that of the wheel used here, or of a file that this machine never fetches."""
    tiny.alter(name, number)
    with pytest.raises(LockError, match="altered"):
        ensure()
    assert environments(tiny) == []


def test_a_lock_edited_after_the_environment_was_made(
    tiny: Miniature, capfd: pytest.CaptureFixture[str]
) -> None:
    """No second environment is begun from it, and the first one stays."""
    ensure()
    before = environments(tiny)
    capfd.readouterr()
    tiny.alter("torch", 0)
    with pytest.raises(LockError, match="altered"):
        ensure()
    assert environments(tiny) == before
    assert "making the environment" not in "".join(capfd.readouterr())


def test_the_builds_lock_is_sealed_too(tiny: Miniature) -> None:
    """uv does not build again what it has in its cache, and would not look at the hashes."""
    path = tiny.lock.with_name("build.lock")
    path.write_text(path.read_text(encoding="utf-8").replace("sha256:5", "sha256:6"), encoding="utf-8")
    with pytest.raises(LockError, match="altered"):
        ensure()


def test_a_mismatch_names_the_package(tiny: Miniature) -> None:
    tiny.alter("torch", 0)
    tiny.seal(tiny.lock.read_text(encoding="utf-8").partition("# seal")[2].partition("\n")[2])
    with pytest.raises(
        LockError, match=rf"torch=={VERSION.replace('+', '.')} is not the file that the lock names"
    ):
        ensure()


def test_a_pin_without_hash(tiny: Miniature) -> None:
    tiny.seal("torch==1\n")
    with pytest.raises(LockError, match=r"docker/rendered/tiny/requirements\.lock:3:torch"):
        ensure()


def test_no_lock(tiny: Miniature) -> None:
    tiny.lock.unlink()
    with pytest.raises(LockError, match="there is no lock"):
        ensure()


def test_a_mac_environment_on_linux() -> None:
    if sys.platform == "darwin":
        pytest.skip("a Mac can make it")
    with pytest.raises(WrongMachineError, match="smoke-cpu"):
        environment.ensure(load("mac"), output=OUTPUT)


def test_two_at_once_make_one(tiny: Miniature) -> None:
    command = [sys.executable, "-m", "harness", "env", "tiny"]
    running = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in "ab"
    ]
    ended = [process.communicate() for process in running]
    assert [process.returncode for process in running] == [0, 0], ended
    assert len({out for out, _ in ended}) == 1
    assert sum("making the environment" in err for _, err in ended) == 1


def test_no_answer_from_the_index(tiny: Miniature, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://user:secret@127.0.0.1:9/simple")
    monkeypatch.setenv("UV_CACHE_DIR", str(tiny.root / "cache"))
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    with pytest.raises(LockError, match=r"no answer from http://.*127\.0\.0\.1:9/simple/") as caught:
        ensure()
    assert "secret" not in str(caught.value)
    assert environments(tiny) == []


def test_a_full_disk(tiny: Miniature, small_disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERLOCK_ENVS", str(small_disk / "envs"))
    monkeypatch.setenv("UV_LINK_MODE", "copy")
    with pytest.raises(DiskFullError, match="no space left"):
        ensure()
    assert [path.name for path in (small_disk / "envs").iterdir()] == [".lock"]
    monkeypatch.setenv("VERLOCK_ENVS", str(tiny.envs))
    assert ensure().exists()


class _Index(http.server.SimpleHTTPRequestHandler):
    """A package index that serves a folder, and writes down what it was asked for."""

    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(self.path)
        super().do_GET()

    def log_request(self, code: object = "-", size: object = "-") -> None:
        """Not on standard error."""


def test_the_torch_index_is_asked_for_torch_only(
    tiny: Miniature, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "index" / "torch"
    page.mkdir(parents=True)
    file = next(tiny.wheels.iterdir())
    file.rename(page / file.name)
    (page / "index.html").write_text(f'<a href="{file.name.replace("+", "%2B")}">{file.name}</a>')
    handler = type("Handler", (_Index,), {"asked": []})
    served = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), lambda *a: handler(*a, directory=str(page.parent))
    )
    threading.Thread(target=served.serve_forever, daemon=True).start()
    monkeypatch.setenv("VERLOCK_TORCH_INDEX", f"http://127.0.0.1:{served.server_port}")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    try:
        assert ensure().exists()
    finally:
        served.shutdown()
        served.server_close()
    assert handler.asked  # type: ignore[attr-defined]
    assert all(path.startswith("/torch/") for path in handler.asked)  # type: ignore[attr-defined]


def test_the_command_prints_the_path_alone(tiny: Miniature) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "harness", "env", "tiny"], capture_output=True, text=True, check=True
    )
    assert Path(done.stdout.strip()).exists()
    again = subprocess.run(
        [sys.executable, "-m", "harness", "env", "tiny", "--json"], capture_output=True, check=True
    )
    assert json.loads(again.stdout)["python"] == done.stdout.strip()
    assert os.access(done.stdout.strip(), os.X_OK)
