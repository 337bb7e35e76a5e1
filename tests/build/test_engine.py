"""Every state that an engine can be in is told apart, and has a remedy."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from harness.build import engine
from harness.build.engine import Answers, choose, judge
from harness.errors import EngineError

OLD = Answers(
    program="/usr/bin/docker",
    kind="docker",
    client="20.10.24+dfsg1",
    server="20.10.24+dfsg1",
    networks=("bridge",),
)
NEW = Answers(
    program="/opt/docker",
    kind="docker",
    client="28.2.2",
    server="28.2.2",
    buildx=True,
    networks=("bridge", "host"),
)


@pytest.mark.parametrize(
    ("change", "missing", "remedy"),
    [
        ({"client": None, "silence": "exec format error"}, "does not run: exec format", "install it again"),
        ({"server": None, "silence": "Is the docker daemon running?"}, "daemon running", r"\.ci/engine"),
        ({"server": None, "silence": "permission denied while trying"}, "this user", "usermod"),
        ({"buildx": False}, "buildx plug-in", "VERLOCK_ENGINE="),
        ({"server": "19.03.1"}, "older than 20.10", "newer engine"),
    ],
)
def test_what_is_missing_has_a_remedy(change: dict[str, object], missing: str, remedy: str) -> None:
    judged = judge(Answers(**{**vars(NEW), **change}))  # type: ignore[arg-type]
    assert not judged.usable
    with pytest.raises(EngineError, match=missing) as caught:
        choose([judged])
    assert caught.match(remedy)


@pytest.mark.parametrize("answers", [OLD, NEW])
def test_an_old_docker_and_a_new_one_with_its_plug_in_can_build(answers: Answers) -> None:
    judged = judge(answers)
    assert (judged.usable, judged.network) == (True, "default")


def test_podman_is_its_own_daemon() -> None:
    podman = Answers(program="/usr/bin/podman", kind="podman", client="4.3.1", server="4.3.1")
    judged = judge(podman)
    assert judged.usable
    assert judged.note
    assert "start Docker" in judged.note
    assert judge(NEW).note is None


def test_without_a_bridge_the_network_of_the_machine_is_used() -> None:
    bare = Answers(
        program="docker", kind="docker", client="20.10.24", server="20.10.24", networks=("host", "none")
    )
    assert judge(bare).network == "host"


def test_the_one_that_can_build_is_chosen_whatever_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    _client(first / "docker", "28.2.2", plugin=False)
    _client(second / "docker", "20.10.24", plugin=False)
    monkeypatch.delenv(engine.VARIABLE, raising=False)
    monkeypatch.setenv("PATH", f"{first}:{second}:/usr/bin:/bin")
    found = [one for one in engine.find() if one.program.startswith(str(tmp_path))]
    assert [(one.client, one.usable) for one in found] == [("20.10.24", True), ("28.2.2", False)]
    monkeypatch.setenv(engine.VARIABLE, str(first / "docker"))
    with pytest.raises(EngineError, match="buildx plug-in"):
        choose(engine.find())


def test_a_daemon_that_is_named_and_silent_is_not_replaced_by_podman(monkeypatch: pytest.MonkeyPatch) -> None:
    silent = judge(Answers(**{**vars(OLD), "server": None, "silence": "connection refused"}))
    podman = judge(Answers(program="/usr/bin/podman", kind="podman", client="4.3.1", server="4.3.1"))
    monkeypatch.delenv(engine.VARIABLE, raising=False)
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    assert choose([podman, silent]) is podman
    with pytest.raises(EngineError, match="connection refused"):
        choose([podman, silent], kind="docker")
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
    with pytest.raises(EngineError, match="connection refused"):
        choose([podman, silent])
    monkeypatch.setenv(engine.VARIABLE, "podman")
    assert choose([podman]) is podman


def test_no_engine_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(engine.VARIABLE, "/no/such/docker")
    with pytest.raises(EngineError, match=r"no container engine was found"):
        choose(engine.find())


def test_a_client_that_is_no_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "docker"
    broken.write_bytes(b"\x7fELF")
    broken.chmod(0o755)
    monkeypatch.setenv(engine.VARIABLE, str(broken))
    with pytest.raises(EngineError, match="does not run"):
        choose(engine.find())


def _client(path: Path, version: str, *, plugin: bool) -> None:
    """A client that answers as Docker's does; what it says is what is under test, not the program."""
    path.parent.mkdir()
    said = json.dumps({"Client": {"Version": version}, "Server": {"Version": version}})
    cases = f"version) echo '{said}' ;; network) echo bridge ;; buildx) exit {int(not plugin)} ;;"
    path.write_text(f"#!/bin/sh\ncase $1 in {cases} esac\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
