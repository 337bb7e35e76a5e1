"""The other source of a base: pulled by its digest from a registry, here a real one on this machine."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.build import base
from harness.build.engine import Engine
from harness.build.image.make import Bench, once, place
from harness.console import Output
from harness.errors import BuildError
from harness.profiles import Profile, load

QUIET = Output(as_json=True)
MakeBench = Callable[..., Bench]
CONFIG = """version: 0.1
storage: {{filesystem: {{rootdirectory: {folder}}}}}
http: {{addr: "127.0.0.1:{port}"}}
"""


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[str]:
    """Where a registry listens; engines take one on the loopback without a certificate."""
    program = shutil.which("docker-registry")
    assert program, "docker-registry is not installed (.ci/engine does it)"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (tmp_path / "registry.yml").write_text(CONFIG.format(folder=tmp_path / "blobs", port=port))
    with (
        (tmp_path / "registry.log").open("w") as log,
        subprocess.Popen([program, "serve", tmp_path / "registry.yml"], stdout=log, stderr=log) as process,
    ):
        try:
            for _ in range(100):
                with socket.socket() as tried:
                    if tried.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.1)
            yield f"127.0.0.1:{port}"
        finally:
            process.terminate()


@pytest.fixture
def profile(registry: str, small_base: str) -> Profile:
    """The cpu profile on a base that is pulled: what was bootstrapped here, pushed."""
    cpu = load("cpu")
    made = base.prepare(cpu, place(cpu), update=False, fresh=False, output=QUIET)
    name = f"{registry}/verlock-base:cpu"
    push = ["skopeo", "copy", "--preserve-digests", "--dest-tls-verify=false"]
    subprocess.run(
        [*push, f"oci-archive:{made.archive}", f"docker://{name}"], check=True, capture_output=True
    )
    image = cpu.image.model_copy(update={"base": f"{name}@{made.digest}"})
    return cpu.model_copy(update={"image": image})


def test_a_base_is_pulled_by_its_digest(
    profile: Profile, engine: Engine, bench: MakeBench, tmp_path: Path
) -> None:
    pulled = base.prepare(profile, tmp_path, update=False, fresh=False, output=QUIET)
    assert pulled.archive is None
    assert pulled.digest == profile.image.base.partition("@")[2]
    ready = bench(engine, tmp_path, f"FROM {pulled.reference}", "RUN python3 --version > /opt/version")
    made = once(ready, tmp_path / "image.tar", no_cache=True)
    assert made.layers == 2  # the base's, as it is in the registry, and the step's


def test_a_digest_that_the_registry_does_not_have(
    profile: Profile, engine: Engine, bench: MakeBench, tmp_path: Path
) -> None:
    name = profile.image.base.partition("@")[0]
    ready = bench(engine, tmp_path, f"FROM {name}@sha256:{0:064d}", "RUN true")
    with pytest.raises(BuildError, match="base image cannot be had"):
        once(ready, tmp_path / "image.tar", no_cache=True)
    assert not (tmp_path / "image.tar").exists()
