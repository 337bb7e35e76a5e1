"""The cpu image: built, named as its record says, and trained in under the cluster's conditions."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.build import budgets
from harness.build.engine import Engine
from harness.build.image.archive import sha256
from harness.build.image.make import ARCHIVE, RECORD, build, place
from harness.build.image.run import run
from harness.console import Output
from harness.errors import ImageError
from harness.profiles import load

QUIET = Output(as_json=True)
REWARD = """
import os

print("user", os.getuid())


def score(data_source, solution_str, ground_truth, extra_info=None, **_):
    return len(solution_str) % 7 / 7
"""


@pytest.fixture(scope="module")
def home(engine: Engine) -> Path:
    """The folder of the built image."""
    build("cpu", update_base=False, base_only=False, no_cache=False, output=QUIET)
    return place(load("cpu"))


def test_the_record_says_what_the_archive_is(home: Path, engine: Engine) -> None:
    record = json.loads((home / RECORD).read_text())
    label = '{{index .Config.Labels "org.opencontainers.image.revision"}}'
    command = engine.command("image", "inspect", record["name"], "--format", label)
    said = subprocess.run(command, env=engine.environment(), check=True, capture_output=True, text=True)
    assert said.stdout.strip() == record["revision"] != ""
    assert record["archive"]["sha256"] == sha256(home / ARCHIVE)
    assert record["archive"]["bytes"] == (home / ARCHIVE).stat().st_size
    assert [path.name for path in home.iterdir() if path.name.startswith(".")] == []


def test_the_image_is_within_its_budget(home: Path, tmp_path: Path) -> None:
    """Packed as skopeo packs layers for a registry."""
    packed = ["skopeo", "copy", "--dest-compress", "--dest-compress-format", "zstd"]
    target = tmp_path / "packed"
    subprocess.run(
        [*packed, f"oci-archive:{home / ARCHIVE}", f"dir:{target}"], check=True, capture_output=True
    )
    size = sum(path.stat().st_size for path in target.iterdir())
    assert 10**8 < size < (home / ARCHIVE).stat().st_size / 2
    assert budgets.image_problems("cpu", archive=size) == []
    assert len(budgets.image_problems("cpu", archive=size * 2)) == 1


def climb(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """The command line that a user types, from a folder of theirs."""
    command = [sys.executable, "-m", "harness", "climb", "--image", *words]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


def test_the_climb_to_ppo_without_root_network_or_a_writable_root(home: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(REWARD)
    done = climb("--json", "--reward", "mine.py:score", "--steps", "2", "--runs", "kept", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads(done.stdout)
    folder = tmp_path / "kept" / document["id"]
    assert document["run"] == str(folder)
    record = json.loads((folder / "run.json").read_text())
    image = json.loads((home / RECORD).read_text())
    assert record["image"] == {"manifest": image["manifest"], "config": image["config"]}
    assert record["fingerprint"]["image"] == image["fingerprint"]
    assert (record["status"], record["rungs"][-1]["name"]) == ("passed", "ppo")
    assert f"{tmp_path}/mine.py" in (folder / "config.yaml").read_text()
    assert "user 1000" in (folder / "output.log").read_text()
    assert {path.lstat().st_uid for path in (tmp_path / "kept").rglob("*")} == {os.getuid()}
    assert (tmp_path / "kept" / "latest").resolve() == folder


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--to", "nowhere"], 21, "--to nowhere is unknown"),
        (["--model", "no/such/model"], 21, "--model no/such/model is not there"),
        (["--data", "/proc/cpuinfo"], 21, "cannot be laid into the image"),
    ],
)
def test_what_cannot_be_done_is_said(
    home: Path, tmp_path: Path, words: list[str], code: int, said: str
) -> None:
    done = climb(*words, cwd=tmp_path)
    assert (done.returncode, said in done.stderr) == (code, True), done.stdout + done.stderr


def test_an_image_that_is_not_built_says_how_to_build_it(engine: Engine, tmp_path: Path) -> None:
    profile = load("cpu").model_copy(update={"name": "nothere", "short": "nothere"})
    with pytest.raises(ImageError, match="nox -s build-nothere"):
        run(profile, [], tmp_path, engine=engine, gpus=False, output=QUIET)
