"""The command on real files: wheels, an index with range requests, an environment; words and exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from harness import cli
from harness.errors import AuditError, LockError, OverrideError, ToolMissingError, VerlockError

OLD, NEW = [(2, 60, ""), (2, 70, "")], [(2, 70, ""), (2, 80, "")]
ARCHITECTURES = b"\0sm_60 sm_70\0"
Audit = Callable[..., Result]


@pytest.fixture
def audit() -> Audit:
    def run(*words: str | Path) -> Result:
        return CliRunner().invoke(cli.app, ["audit", *map(str, words)])

    return run


def torch_members(make: Any, cuda: list[Any], states: bytes = ARCHITECTURES) -> dict[str, bytes]:
    return {
        "torch/lib/libtorch_cuda.so": make.cuda_library(*[cuda] * 12, filler=300_000),
        "torch/lib/libtorch_cuda_linalg.so": make.cuda_library(*[[*OLD, (2, 80, "")]] * 3),
        "torch/lib/libtorch_python.so": make.library({".text": bytes(20_000), ".rodata": b"ipc_h" + states}),
        "torch/lib/libshm.so": b"INPUT(libshm.so.1)" + bytes(20_000),
    }


@pytest.mark.parametrize("deflated", [True, False])
def test_a_wheel_file(make: Any, tmp_path: Path, audit: Audit, deflated: bool) -> None:
    good = make.wheel(tmp_path, "torch", "2.8.0+cu126", torch_members(make, OLD), deflated=deflated)
    done = audit("p40-sm61", "--wheel", good, "--json")
    document = json.loads(done.stdout)
    assert (done.exit_code, document["verdict"], document["compute_capability"]) == (0, "passed", "6.1")
    (package,) = document["packages"]
    assert (package["version"], package["built_for"]) == ("2.8.0+cu126", ["sm_60", "sm_70"])
    assert [
        (one["name"], one["complete"], one["containers"][0]["count"]) for one in package["libraries"]
    ] == [
        ("torch/lib/libtorch_cuda.so", True, 12),
        ("torch/lib/libtorch_cuda_linalg.so", True, 3),
    ]
    unused = [one["subject"] for one in document["findings"] if one["severity"] == "unused"]
    assert unused == ["triton 3.3.1"]


def test_a_wheel_that_the_card_cannot_run(make: Any, tmp_path: Path, audit: Audit) -> None:
    bad = make.wheel(tmp_path, "torch", "2.8.0", torch_members(make, NEW, b"\0sm_70 sm_80\0"))
    done = audit("p40-sm61", "--wheel", bad)
    assert done.exit_code == AuditError.exit_code == 25
    assert "refused  torch 2.8.0: libtorch_cuda.so has no code for sm_61 (0 of 12 containers)" in done.stdout
    assert "runs     torch 2.8.0: libtorch_cuda_linalg.so: 3 of 3 containers, through sm_60" in done.stdout
    assert "torch 2.7.1 is the last release" in done.stderr
    document = json.loads(audit("p40-sm61", "--wheel", bad, "--json").stdout)
    assert document["verdict"] == "refused"
    assert json.loads(audit("a100", "--wheel", bad, "--json").stdout)["verdict"] == "passed"


def test_several_wheels(make: Any, tmp_path: Path, audit: Audit) -> None:
    torch = make.wheel(tmp_path, "torch", "2.7.1", torch_members(make, OLD))
    members = {"nvidia/nccl/lib/libnccl.so.2": make.cuda_library(NEW)}
    nccl = make.wheel(tmp_path, "nvidia_nccl_cu12", "2.26.2", members)
    done = audit("p40-sm61", "--wheel", torch, "--wheel", nccl)
    assert done.exit_code == 25
    assert "choose a version built for sm_61" in done.stderr


def test_a_profile_without_a_card_has_nothing_to_audit(audit: Audit) -> None:
    for name in ("cpu", "mac-m4-16g"):
        done = audit(name)
        assert (done.exit_code, "nothing to audit" in done.stdout) == (0, True)
    assert json.loads(audit("cpu", "--json").stdout)["verdict"] == "nothing to audit"


def test_options_that_exclude_each_other(audit: Audit) -> None:
    assert audit("p40-sm61", "--remote", "--installed", sys.executable).exit_code == 2


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("torch-2.7.1-cp311-cp311-linux_x86_64.whl", b"", "damaged wheel"),
        ("torch-2.7.1-cp311-cp311-linux_x86_64.whl", b"PK\3\4 not really", "damaged wheel"),
    ],
)
def test_bad_wheels(tmp_path: Path, audit: Audit, name: str, content: bytes, message: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    error = audit("p40-sm61", "--wheel", path).exception
    assert isinstance(error, AuditError)
    assert message in str(error)


def test_what_is_no_wheel_is_a_mistake_and_no_verdict_and_all_are_told(
    make: Any, tmp_path: Path, audit: Audit
) -> None:
    make.wheel(tmp_path, "torch", "1", {}).rename(tmp_path / "torch.whl")
    (tmp_path / "d").mkdir()
    paths = [tmp_path / name for name in ("absent-1-py3-none-any.whl", "d", "torch.whl")]
    error = audit("p40-sm61", *(word for path in paths for word in ("--wheel", path))).exception
    assert isinstance(error, OverrideError)
    assert error.exit_code != AuditError.exit_code
    told = ["no such file", "a folder, not a wheel file", "not the name of a wheel"]
    assert [word in problem.what for word, problem in zip(told, error.problems, strict=True)] == [True] * 3
    assert all(problem.where and problem.why and problem.todo for problem in error.problems)


@pytest.mark.parametrize("words", [("--wheel", "torch.whl"), ("--torch", "2.8.0"), ("--installed", "python")])
def test_a_profile_without_a_card_ignores_nothing_in_silence(words: tuple[str, str], audit: Audit) -> None:
    error = audit("cpu", *words).exception
    assert isinstance(error, OverrideError)
    assert f"{words[0]} with a profile that has no CUDA card" in str(error)


def test_a_truncated_or_altered_wheel(make: Any, tmp_path: Path, audit: Audit) -> None:
    whole = make.wheel(tmp_path, "torch", "2.7.1", torch_members(make, OLD))
    data = whole.read_bytes()
    for spoilt in (data[: len(data) // 2], data[:-1], data[:900] + b"\xff" * 60 + data[960:]):
        whole.write_bytes(spoilt)
        error = audit("p40-sm61", "--wheel", whole).exception
        assert isinstance(error, AuditError), error
        assert "damaged" in str(error)


def test_a_truncated_library_in_a_stored_wheel(make: Any, tmp_path: Path, audit: Audit) -> None:
    cut = make.cuda_library(OLD)[:-100]
    path = make.wheel(tmp_path, "torch", "2.7.1", {"torch/lib/libtorch_cuda.so": cut}, deflated=False)
    assert isinstance(audit("p40-sm61", "--wheel", path).exception, AuditError)


# --- over an index ------------------------------------------------------------------------------------------


def big_torch(make: Any, folder: Path, version: str, cuda: list[Any]) -> Path:
    """8 MB that do not pack, so that reading it whole would show."""
    members = torch_members(make, cuda)
    noise = bytes(range(256)) * 8_000
    members["torch/lib/libtorch_cuda.so"] = make.cuda_library(*[cuda] * 12) + noise * 4
    return make.wheel(folder, "torch", version, members, deflated=False)


@pytest.mark.parametrize("html", [False, True])
def test_an_index_is_asked_for_parts_only(make: Any, server: Any, audit: Audit, html: bool) -> None:
    server.html = html
    size = big_torch(make, server.folder, "2.8.0", NEW).stat().st_size
    done = audit("p40-sm61", "--torch", "2.8.0", "--json")
    document = json.loads(done.stdout)
    assert done.exit_code == 25
    assert document["source"] == "index"
    assert 0 < document["megabytes"] * 1e6 < size / 3
    refused = [one for one in document["findings"] if one["severity"] == "refused"]
    assert (refused[0]["runs"], refused[0]["of"]) == (0, 4)
    big_torch(make, server.folder, "2.8.0", OLD)
    assert audit("p40-sm61", "--torch", "2.8.0").exit_code == 0


def test_an_index_with_a_login(make: Any, server: Any, audit: Audit, monkeypatch: pytest.MonkeyPatch) -> None:
    make.wheel(server.folder, "torch", "2.7.1", torch_members(make, OLD))
    server.login = "Basic bWU6c2VjcmV0IQ=="  # me:secret!
    error = audit("p40-sm61", "--torch", "2.7.1").exception
    assert "it answers 401" in str(error)
    with_login = server.url.replace("//", "//me:secret%21@") + "/simple"
    monkeypatch.setenv("UV_DEFAULT_INDEX", with_login)
    done = audit("p40-sm61", "--torch", "2.7.1")
    assert done.exit_code == 0
    error = audit("p40-sm61", "--torch", "9.9").exception
    assert "secret" not in done.output + str(error)


def test_a_server_without_ranges(make: Any, server: Any, audit: Audit) -> None:
    big_torch(make, server.folder, "2.7.1", OLD)
    server.ranges = False
    error = audit("p40-sm61", "--torch", "2.7.1").exception
    assert isinstance(error, LockError)
    assert "sends more than" in str(error)


@pytest.mark.parametrize("version", ["9.9", "2.7"])
def test_a_version_that_is_not_there(make: Any, server: Any, audit: Audit, version: str) -> None:
    make.wheel(server.folder, "torch", "2.7.1", torch_members(make, OLD))
    error = audit("p40-sm61", "--torch", version).exception
    assert isinstance(error, LockError)
    assert f"no wheel of torch {version}" in str(error)


def test_an_index_that_is_not_there(audit: Audit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.build.web.time.sleep", lambda seconds: None)
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:9/simple")
    error = audit("p40-sm61", "--torch", "2.7.1").exception
    assert isinstance(error, LockError)
    assert "cannot read http://127.0.0.1:9/simple/torch/" in str(error)


def test_a_file_whose_hash_is_not_locked_is_not_it(make: Any, server: Any, audit: Audit) -> None:
    make.wheel(server.folder, "torch", "2.7.1", torch_members(make, OLD))
    error = audit("p40-sm61", "--remote").exception
    assert isinstance(error, VerlockError)


# --- an environment -----------------------------------------------------------------------------------------


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """An empty one; wheels are unpacked into it as an installer does."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "env"], check=True)
    return tmp_path / "env"


def install(environment: Path, wheel: Path) -> None:
    import zipfile

    (site,) = environment.glob("lib/python*/site-packages")
    zipfile.ZipFile(wheel).extractall(site)


def test_an_environment(make: Any, tmp_path: Path, audit: Audit, environment: Path) -> None:
    python = environment / "bin" / "python"
    error = audit("p40-sm61", "--installed", python).exception
    assert isinstance(error, OverrideError)
    assert "no torch is installed" in str(error)
    install(environment, make.wheel(tmp_path, "torch", "2.7.1", torch_members(make, OLD)))
    install(environment, make.wheel(tmp_path, "vllm", "0.9.2", {"vllm/_C.abi3.so": make.cuda_library(NEW)}))
    done = audit("p40-sm61", "--installed", python)
    assert done.exit_code == 0
    assert "unused   vllm 0.9.2: _C.abi3.so has no code for sm_61" in done.stdout
    (library,) = environment.rglob("libtorch_cuda.so")
    library.write_bytes(make.cuda_library(NEW))
    assert audit("p40-sm61", "--installed", python).exit_code == 25
    library.write_bytes(library.read_bytes()[:-64])
    error = audit("p40-sm61", "--installed", python).exception
    assert "damaged library" in str(error)
    library.unlink()
    done = audit("p40-sm61", "--installed", python)
    assert done.exit_code == 25
    assert "libtorch_cuda.so is not there" in done.stderr


@pytest.mark.parametrize(
    ("script", "why"),
    [
        (None, "No such file or directory"),
        ("not a program", "Exec format error"),
        ("#!/bin/sh\necho 'no such option' >&2\nexit 3\n", "it ended with exit code 3: no such option"),
        ("#!/bin/sh\necho hello\n", "it answered something else"),
        ("#!/bin/sh\necho 7\n", "it answered something else"),
    ],
)
def test_no_interpreter(script: str | None, why: str, tmp_path: Path, audit: Audit) -> None:
    """Words in place of Python's own: no exception's name, no ``PosixPath``."""
    program = tmp_path / "python"
    if script is not None:
        program.write_text(script)
        program.chmod(0o755)
    error = audit("p40-sm61", "--installed", program).exception
    assert isinstance(error, ToolMissingError)
    (problem,) = error.problems
    assert str(problem.why).startswith(why)
    assert "Path(" not in str(error)
