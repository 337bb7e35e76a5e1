"""An engine in trouble: said clearly, with nothing half-written, and a second try works."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.build import base
from harness.build.engine import Engine, choose, find
from harness.build.image import steps
from harness.build.image.make import Bench, load_archive, once, place
from harness.console import Output
from harness.errors import BuildError, DiskFullError, EngineError
from harness.profiles import load, root

QUIET = Output(as_json=True)
CPU = load("cpu")
MakeBench = Callable[..., Bench]


def test_a_base_that_does_not_exist(engine: Engine, bench: MakeBench, tmp_path: Path) -> None:
    ready = bench(engine, tmp_path, f"FROM debian:bookworm@sha256:{0:064d}", "RUN true")
    with pytest.raises(BuildError, match="base image cannot be had"):
        once(ready, tmp_path / "image.tar", no_cache=True)
    assert [path.name for path in tmp_path.iterdir()] == ["context"]


def test_a_step_that_fails_names_itself(
    engine: Engine, bench: MakeBench, small_base: str, tmp_path: Path
) -> None:
    ready = bench(engine, tmp_path, f"FROM {small_base}", "RUN echo broken here && false")
    with pytest.raises(BuildError, match="echo broken here"):
        once(ready, tmp_path / "image.tar", no_cache=True)
    assert [path.name for path in tmp_path.iterdir()] == ["context"]


def test_a_full_disk(engine: Engine, bench: MakeBench, small_base: str, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=20m", "none", small]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("may not mount here")
    try:
        ready = bench(engine, small, f"FROM {small_base}", "RUN true")
        with pytest.raises(DiskFullError, match="no space left"):
            once(ready, small / "image.tar", no_cache=True)
        assert [path.name for path in small.iterdir()] == ["context"]
        subprocess.run(["mount", "-o", "remount,size=900m", small], check=True)
        assert once(ready, small / "image.tar", no_cache=False).path.is_file()
    finally:
        subprocess.run(["umount", small], check=True)


class Private:
    """A daemon of its own, which a test may end."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.variables: dict[str, str] = {}

    def start(self) -> None:
        environment = {**os.environ, "VERLOCK_SECOND_HOME": str(self.home)}
        script = root() / ".ci" / "second-engine"
        done = subprocess.run([script], env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        self.variables = dict(line.split("=", 1) for line in done.stdout.split())

    def end(self, how: signal.Signals) -> None:
        process = int((self.home / "docker.pid").read_text())
        os.kill(process, how)
        while Path(f"/proc/{process}").exists():
            time.sleep(0.1)


@pytest.fixture
def private(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Private]:
    if os.getuid() != 0:
        pytest.skip("a daemon is started by root only")
    one = Private(tmp_path_factory.mktemp("engine"))
    one.start()
    yield one
    one.end(signal.SIGTERM)


def test_an_engine_that_stops_in_mid_build(
    private: Private, bench: MakeBench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in private.variables.items():
        monkeypatch.setenv(name, value)
    engine = choose(find())
    made = base.prepare(CPU, place(CPU), update=False, fresh=False, output=QUIET)
    assert made.archive is not None
    load_archive(engine, made.archive, QUIET)
    ready = bench(engine, tmp_path, f"FROM {made.reference}", "RUN sleep 8")
    # By SIGTERM: after SIGKILL its containerd would live on.
    timer = threading.Timer(4, private.end, [signal.SIGTERM])
    timer.start()
    with pytest.raises(EngineError, match="the engine stopped"):
        once(ready, tmp_path / "image.tar", no_cache=True)
    timer.join()
    with pytest.raises(EngineError, match="daemon does not answer"):
        choose(find())
    assert [path.name for path in tmp_path.iterdir()] == ["context"]
    private.start()
    assert once(ready, tmp_path / "image.tar", no_cache=False).layers == 1


def test_the_words_of_a_stopped_engine_are_known(engine: Engine) -> None:
    with pytest.raises(EngineError, match=r"\.ci/engine"):
        steps.run(engine, ["--host", "unix:///no/such.sock", "images"], output=QUIET, doing="asking")
