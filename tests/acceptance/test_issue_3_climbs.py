"""Issue 3, images: the ladder climbed in each of the four, as the cluster would run them; and bad input.

The images stay in dist/, since the hand-off takes a100's with its record; p40's is removed, for the disk.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from harness.build.image.make import ARCHIVE, RECORD, place
from harness.profiles import load, root

pytestmark = pytest.mark.acceptance

Record = Callable[[str, object], None]
Image = Callable[[str], dict[str, Any]]
# What a container may do, said by code that runs in it.
SPY = """
import os, pathlib, socket

def tried(what):
    try:
        what()
        return "yes"
    except OSError as error:
        return error.strerror

print("SPY uid", os.getuid(), flush=True)
print("SPY write", tried(lambda: pathlib.Path("/opt/verlock/spy").touch()), flush=True)
print("SPY own", tried(lambda: pathlib.Path(__file__).open("a")), flush=True)
print("SPY net", sorted(name for _, name in socket.if_nameindex()), flush=True)

def score(data_source, solution_str, ground_truth, extra_info=None, **_):
    return len(solution_str) % 7 / 7
"""


def run(*words: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "harness", *map(str, words)]
    environment = {**os.environ, **variables}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=root())


def verlock(*words: str | Path, **variables: str) -> dict[str, Any]:
    done = run(*words, "--json", **variables)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return dict(json.loads(done.stdout))


def climbed(
    short: str, image: Image, engine: Mapping[str, str], folder: Path, *words: str, record: Record
) -> dict[str, Any]:
    """Climb in the image, with a spy in the place of the reward; the record must name the image."""
    built_now = image(short)
    (folder / "spy.py").write_text(SPY)
    (folder / "spy.py").chmod(0o666)  # anybody may write to it here, and nobody in there
    reward = ("--reward", f"{folder}/spy.py:score")
    where = ("--profile", load(short).name, "--image", "--runs", str(folder / "runs"))
    document = verlock("climb", *where, *reward, *words, **engine)
    kept = json.loads((folder / "runs" / document["id"] / "run.json").read_text())
    assert kept["status"] == "passed"
    assert kept["image"] == {"manifest": built_now["manifest"], "config": built_now["config"]}
    for key in ("manifest", "seconds"):
        record(f"image_{key}", built_now[key])
    record("archive_bytes", built_now["archive"]["bytes"])
    record("rungs", {rung["name"]: rung["verified"] for rung in kept["rungs"]})
    record("climb_seconds", kept["seconds"])
    record("peak_pss_gib", round(kept["resources"]["peak_pss_bytes"] / 2**30, 2))
    return dict(kept)


def spied(folder: Path) -> set[str]:
    lines = (folder / "runs" / "latest" / "output.log").read_text().splitlines()
    return {line[line.index("SPY ") :].strip() for line in lines if "SPY " in line}


REFUSED = "Read-only file system"
CONFINED = {"SPY uid 1000", f"SPY write {REFUSED}", f"SPY own {REFUSED}", "SPY net ['lo']"}


def test_the_climb_to_ppo_in_the_cpu_image(
    image: Image, engine: Mapping[str, str], tmp_path: Path, record_property: Record
) -> None:
    kept = climbed("cpu", image, engine, tmp_path, record=record_property)
    assert kept["rungs"][-1]["name"] == "ppo"
    assert spied(tmp_path) == CONFINED


def test_the_rehearsal_in_the_p40_image(
    image: Image, engine: Mapping[str, str], tmp_path: Path, record_property: Record
) -> None:
    kept = climbed("p40", image, engine, tmp_path, "--rehearse", record=record_property)
    assert kept["rungs"][-1]["name"] == "ppo"
    assert spied(tmp_path) == CONFINED
    assert kept["versions"]["torch"].startswith("2.7.1")
    home = place(load("p40"))
    (home / RECORD).unlink()
    (home / ARCHIVE).unlink()
    client = {**os.environ, **engine}
    subprocess.run(["/usr/bin/docker", "rmi", "verlock:p40"], env=client, check=True, capture_output=True)


def test_the_rehearsal_in_the_a100_image(
    image: Image, engine: Mapping[str, str], tmp_path: Path, record_property: Record
) -> None:
    kept = climbed("a100", image, engine, tmp_path, "--rehearse", record=record_property)
    assert kept["rungs"][-1]["name"] == "ppo"
    assert spied(tmp_path) == CONFINED
    assert "vLLM" in json.dumps(kept), "what was not verified is not named"


def test_the_mac_image_under_emulation(
    image: Image, engine: Mapping[str, str], tmp_path: Path, record_property: Record
) -> None:
    if os.getuid() != 0:
        pytest.skip("the kernel is told about arm64 by root only")
    subprocess.run([root() / ".ci" / "arm64"], check=True, capture_output=True)
    kept = climbed("mac", image, engine, tmp_path, "--to", "forward", record=record_property)
    assert [rung["name"] for rung in kept["rungs"]] == ["env", "data", "forward"]


# --- what is tested with every change, once more on this commit; and bad input as a user meets it -----------


def test_the_container_tests_pass(engine: Mapping[str, str], record_property: Record) -> None:
    """Planted differences by class; a stopped engine, a full disk, a base that is not there; a secret."""
    command = [sys.executable, "-m", "pytest", "tests/container", "-q", "-rA", "-p", "no:cacheprovider"]
    environment = {**os.environ, **engine}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=root())
    assert done.returncode == 0, done.stdout[-5000:]
    passed = [line.partition(" ")[2] for line in done.stdout.splitlines() if line.startswith("PASSED")]
    record_property("passed", passed)
    assert any("planted_differences" in name for name in passed)
    assert not [line for line in done.stdout.splitlines() if line.startswith("SKIPPED")]


def test_no_engine() -> None:
    done = run("build", "cpu", VERLOCK_ENGINE="no-such-engine")
    assert done.returncode == 27
    assert "no container engine was found" in done.stderr
    assert "docker.io" in done.stderr


def test_an_engine_without_buildx(tmp_path: Path, engine: Mapping[str, str]) -> None:
    """A real client since 23, without the plug-in, in front of a daemon that answers."""
    script = root() / ".ci" / "second-engine"
    done = subprocess.run([script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    client = dict(line.split("=", 1) for line in done.stdout.split())["VERLOCK_ENGINE"]
    subprocess.run([script, "stop"], check=True)
    told = run("build", "cpu", **engine, VERLOCK_ENGINE=client, DOCKER_CONFIG=str(tmp_path))
    assert told.returncode == 27
    assert "buildx plug-in" in told.stderr
    assert "docker-buildx" in told.stderr


def test_a_truncated_archive(image: Image, tmp_path: Path) -> None:
    image("cpu")
    whole = place(load("cpu")) / ARCHIVE
    cut = tmp_path / "cut.tar"
    with whole.open("rb") as source, cut.open("wb") as target:
        target.write(source.read(whole.stat().st_size // 10))
    told = run("compare", whole, cut)
    assert told.returncode == 28
    assert "cut off or damaged" in told.stderr
    assert run("compare", whole, whole).returncode == 0
