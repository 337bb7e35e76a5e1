"""What these tests share: a real engine; `nox -s tests-container` must not pass without one."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.build import base
from harness.build.engine import Engine, choose, find
from harness.build.image.context import Context
from harness.build.image.make import Bench, load_archive, place
from harness.console import Output
from harness.profiles import load

Make = Callable[..., Path]
MakeBench = Callable[..., Bench]


@pytest.fixture(scope="session")
def engine() -> Engine:
    """The engine that builds; without one these tests fail."""
    return choose(find())


@pytest.fixture(scope="session")
def small_base(engine: Engine) -> str:
    """The cpu profile's base, in the engine: what stands on it needs no registry."""
    output = Output(as_json=True)
    made = base.prepare(load("cpu"), place(load("cpu")), update=False, fresh=False, output=output)
    assert made.archive is not None
    load_archive(engine, made.archive, output)
    return made.reference


@pytest.fixture
def make(engine: Engine, small_base: str, tmp_path: Path) -> Make:
    """Build the lines of a Dockerfile on the small base, without cache, and save what comes out."""

    def made(name: str, *lines: str, options: tuple[str, ...] = ()) -> Path:
        context = tmp_path / f"context-{name}"
        context.mkdir()
        (context / "Dockerfile").write_text("\n".join([f"FROM {small_base}", *lines]) + "\n")
        tag = f"verlock-test:{name}"
        network = ["--network", "host"] if engine.network == "host" else []
        command = engine.command("build", "--no-cache", *network, *options, "--tag", tag, context)
        done = subprocess.run(command, env=engine.environment(), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        saved = tmp_path / f"{name}.tar"
        subprocess.run(engine.command("save", "--output", saved, tag), check=True, capture_output=True)
        subprocess.run(engine.command("rmi", tag), check=True, capture_output=True)
        return saved

    return made


@pytest.fixture
def bench() -> MakeBench:
    """Make ready to build the lines of a Dockerfile in a folder, by the steps of a real build."""

    def made(engine: Engine, folder: Path, *lines: str) -> Bench:
        context = folder / "context"
        context.mkdir(exist_ok=True)
        (context / "Dockerfile").write_text("\n".join(lines) + "\n")
        profile = load("cpu")
        network = ("--network", "host") if engine.network == "host" else ()
        return Bench(
            profile=profile,
            engine=engine,
            home=folder,
            base=base.Base(reference=base.reference(profile), digest="sha256:0", archive=None),
            context=Context(
                path=context, dockerfile=context / "Dockerfile", parts={}, fingerprint="sha256:0"
            ),
            options=network,
            output=Output(as_json=True),
        )

    return made
