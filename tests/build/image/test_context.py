"""A build sees what it needs, nothing of this machine, and only wheels that the lock names."""

from __future__ import annotations

import hashlib
import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.build import lockfile
from harness.build.image.context import WHEELS, digest, stage
from harness.build.image.run import limits
from harness.build.image.secrets import pip_conf, secrets, uv_toml
from harness.build.lock import folder
from harness.build.sources import Sources
from harness.errors import LockError, StaleError
from harness.profiles import load, names, root

MakeWheel = Callable[[Path, str, str], Path]


@pytest.mark.parametrize("name", names())
def test_a_context_holds_the_rooms_that_run_inside(tmp_path: Path, name: str) -> None:
    context = stage(load(name), tmp_path / "c", base="sha256:1", where_from=Sources())
    there = {path.relative_to(context.path).as_posix() for path in context.path.rglob("*") if path.is_file()}
    assert {f"docker/rendered/{load(name).name}/{file}" for file in ("Dockerfile", "build.lock")} <= there
    assert "harness/ladder/climb.py" in there
    assert not [path for path in there if path.startswith(("harness/build/", "runs", ".git", "tests"))]
    assert not [path for path in there if path.endswith(".pyc")]
    assert (context.path / WHEELS).is_dir()


def test_the_fingerprint_is_that_of_content_and_base(tmp_path: Path) -> None:
    profile = load("cpu")

    def made(name: str, base: str) -> str:
        return stage(profile, tmp_path / name, base=base, where_from=Sources()).fingerprint

    assert made("a", "sha256:1") == made("b", "sha256:1")
    assert made("c", "sha256:2") != made("d", "sha256:1")
    before = digest(tmp_path / "a")
    (tmp_path / "a" / "harness" / "cli.py").write_text("")
    assert digest(tmp_path / "a") != before


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the checkout that a test may spoil."""
    for part in ("profiles", "docker", "harness"):
        shutil.copytree(root() / part, tmp_path / "root" / part, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setenv("VERLOCK_ROOT", str(tmp_path / "root"))
    return tmp_path / "root"


def test_an_altered_lock_is_refused(checkout: Path, tmp_path: Path) -> None:
    path = folder(load("cpu")) / "requirements.lock"
    path.write_text(path.read_text().replace("ray==2.", "ray==3.", 1))
    with pytest.raises(LockError, match="altered"):
        stage(load("cpu"), tmp_path / "c", base="sha256:1", where_from=Sources())


def test_a_stale_dockerfile_is_refused(checkout: Path, tmp_path: Path) -> None:
    (folder(load("cpu")) / "Dockerfile").write_text("FROM scratch\n")
    with pytest.raises(StaleError, match="verlock render"):
        stage(load("cpu"), tmp_path / "c", base="sha256:1", where_from=Sources())


def test_only_wheels_of_the_lock_are_offered(checkout: Path, tmp_path: Path, make_wheel: MakeWheel) -> None:
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    good = make_wheel(wheels, "six", "1.0")
    make_wheel(wheels, "zipp", "0.1")  # another version than the lock's
    shutil.copy(good, wheels / "tqdm-4.0-py3-none-any.whl")  # another content than the lock's
    lines = {"six": hashlib.sha256(good.read_bytes()).hexdigest(), "zipp": "0" * 64, "tqdm": "1" * 64}
    versions = {"six": "1.0", "zipp": "9.9", "tqdm": "4.0"}
    body = "".join(f"{name}=={versions[name]} \\\n    --hash=sha256:{lines[name]}\n" for name in lines)
    (folder(load("cpu")) / "requirements.lock").write_text(lockfile.sealed(body, head=["made by a test"]))
    where = Sources(find_links=(str(wheels), "/no/such/folder"))
    context = stage(load("cpu"), tmp_path / "c", base="sha256:1", where_from=where)
    assert [path.name for path in (context.path / WHEELS).iterdir()] == [good.name]


def test_settings_become_secrets_only_where_there_are_any(tmp_path: Path) -> None:
    assert secrets(Sources(find_links=("/opt/x",)), tmp_path) == []
    bundle = tmp_path / "ca.crt"
    bundle.write_text("x")
    where = Sources(index="https://a/simple", extra_indexes=("https://b/simple",), certificate=str(bundle))
    options = secrets(where, tmp_path)
    assert [option.partition(",")[0] for option in options[1::2]] == ["id=ca", "id=pip", "id=uv"]
    assert (tmp_path / "pip").stat().st_mode & 0o777 == 0o600
    assert pip_conf(where) == "[global]\nindex-url = https://a/simple\nextra-index-url = https://b/simple\n"
    assert tomllib.loads(uv_toml(where))["index"] == [
        {"url": "https://b/simple"},
        {"url": "https://a/simple", "default": True},
    ]


def test_a_run_has_the_profile_s_limits_and_no_more_cores_than_there_are() -> None:
    pytest.importorskip("docker.types")
    found = limits(load("a100"), cores=2, gpus=True)
    assert found["nano_cpus"] == 2 * 10**9
    assert found["mem_limit"] == load("a100").hardware.memory_gib * 2**30
    assert found["device_requests"][0]["Count"] == -1
    assert "device_requests" not in limits(load("cpu"), cores=2, gpus=False)
