"""Issue 3, images: cpu rebuilt to the last bit, on two engines, with no setting of this machine in it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from harness.build.engine import choose, find
from harness.profiles import root

pytestmark = pytest.mark.acceptance

Record = Callable[[str, object], None]
MARKER = "MARKER-9d41c2"


def verlock(*words: str, **variables: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "harness", *words, "--json"]
    environment = {**os.environ, **variables}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=root())
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    return dict(json.loads(done.stdout))


def script(name: str, *words: str) -> str:
    path = root() / ".ci" / name
    done = subprocess.run([path, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def second() -> Iterator[dict[str, str]]:
    """A modern engine, which keeps images in containerd's store."""
    yield dict(line.split("=", 1) for line in script("second-engine").split())
    script("second-engine", "stop")


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The last commit: what lies around in a working tree would be in the label of the revision."""
    place = tmp_path_factory.mktemp("checkout") / "verlock"
    subprocess.run(["git", "clone", "-q", root(), place], check=True)
    return place


@pytest.fixture(scope="module")
def index() -> Iterator[str]:
    """An index with a password that has no package: it is asked first, and holds nothing."""

    class Empty(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(404)

        def log_message(self, *arguments: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Empty) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://user:{MARKER}@127.0.0.1:{server.server_port}/simple"
        server.shutdown()


def test_two_builds_are_the_same_to_the_last_bit(engine: Mapping[str, str], record_property: Record) -> None:
    proof = verlock("prove", "cpu", **engine)
    assert proof["identical"]
    record_property("manifest", proof["image"]["manifest"])
    record_property("archive_bytes", proof["image"]["archive"]["bytes"])
    record_property("seconds", proof["seconds"])


def test_two_engines_build_one_image(
    engine: Mapping[str, str], second: Mapping[str, str], checkout: Path, record_property: Record
) -> None:
    one = verlock("build", "cpu", VERLOCK_ROOT=str(checkout), **engine)
    shutil.rmtree(checkout / "dist")
    two = verlock("build", "cpu", VERLOCK_ROOT=str(checkout), **second)
    assert one["engine"]["version"] != two["engine"]["version"]
    for key in ("manifest", "config", "archive", "base", "fingerprint"):
        assert one[key] == two[key]
    record_property("engines", [one["engine"]["version"], two["engine"]["version"]])
    record_property("manifest", one["manifest"])


def test_no_setting_of_this_machine_is_in_the_archive(
    engine: Mapping[str, str], checkout: Path, index: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", engine["DOCKER_HOST"])
    if choose(find()).network != "host":
        pytest.skip("a build cannot reach an index on this machine's loopback")
    settings = tmp_path / "pip.conf"
    settings.write_text(f"[global]\nextra-index-url = {index}\n")
    bundle = tmp_path / "ca.crt"
    known = os.environ.get("SSL_CERT_FILE", "/etc/ssl/certs/ca-certificates.crt")
    bundle.write_text(Path(known).read_text() + f"\n# {MARKER}\n")
    variables = {
        "PIP_CONFIG_FILE": str(settings),
        "SSL_CERT_FILE": str(bundle),
        "VERLOCK_ROOT": str(checkout),
    }
    record = verlock("build", "cpu", "--no-cache", **variables, **engine)
    archive = checkout / "dist" / "cpu" / record["archive"]["file"]
    found = subprocess.run(["grep", "--text", "-c", MARKER, archive], capture_output=True, check=False)
    assert found.returncode == 1, "the marker is in the archive"
