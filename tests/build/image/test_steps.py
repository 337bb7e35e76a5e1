"""What engines say when a build fails becomes an error that says what to do."""

from __future__ import annotations

import pytest

from harness.build.engine import Engine
from harness.build.image.steps import explain, run
from harness.console import Output
from harness.errors import BuildError, DiskFullError, EngineError, VerlockError

SHELL = Engine(
    program="/bin/sh",
    kind="docker",
    client="20.10.24",
    server="20.10.24",
    usable=True,
    missing=None,
    remedy=None,
    note=None,
    network="default",
)


@pytest.mark.parametrize(
    ("said", "kind", "message"),
    [
        (
            "#9 1.2 error: failed to write: No space left on device (os error 28)",
            DiskFullError,
            "disk of the",
        ),
        ("Cannot connect to the Docker daemon at unix:///x. Is it running?", EngineError, "engine stopped"),
        ("error: rpc error: code = Unavailable desc = error reading from server: EOF", EngineError, r"\.ci/"),
        (
            "failed to solve: rpc error: code = Unavailable desc = transport is closing",
            EngineError,
            "stopped",
        ),
        (
            "failed to solve: x: pull access denied, repository does not exist",
            BuildError,
            "base image cannot",
        ),
        (
            "ERROR: failed to resolve source metadata for docker.io/x@sha256:00: not found",
            BuildError,
            "digest",
        ),
        (
            " > [internal] load metadata for docker.io/x@sha256:0:\nlookup: no such host",
            BuildError,
            "base image",
        ),
        ("#9 error: dial tcp: lookup index: no such host", BuildError, "a step failed"),
        ("#9 ERROR: executor failed running [/bin/sh -c false]: exit code: 1", BuildError, "exit code: 1"),
    ],
)
def test_failures_are_told_apart(said: str, kind: type[VerlockError], message: str) -> None:
    error = explain(["#1 fine", said], doing="building cpu")
    assert type(error) is kind
    with pytest.raises(kind, match=message):
        raise error


def test_lines_are_shown_as_they_come(capsys: pytest.CaptureFixture[str]) -> None:
    lines = run(SHELL, ["-c", "echo one; echo two >&2"], output=Output(), doing="trying")
    assert lines == ["one", "two"]
    assert capsys.readouterr().out == "  one\n  two\n"


def test_a_failed_command_is_an_error_with_its_words() -> None:
    with pytest.raises(BuildError, match="cannot do this"):
        run(SHELL, ["-c", "echo cannot do this; exit 3"], output=Output(as_json=True), doing="trying")
