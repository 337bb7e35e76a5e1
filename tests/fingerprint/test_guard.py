"""A process checks itself against the driver's numbers: in a real environment, a copy that is spoilt here."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

if importlib.util.find_spec("verl") is None:
    pytest.skip("verl comes with the lock", allow_module_level=True)

from harness.fingerprint.identity import content

ROOT = Path(__file__).parents[2]
SITE = f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
CHECK = """
import json, os, sys
from harness.errors import VerlockError
from harness.fingerprint import guard
told = {"touched": guard.touched(os.environ)}
try:
    told["passed"] = guard.check()
except VerlockError as error:
    told |= {"code": error.exit_code, "said": str(error)}
print(json.dumps(told))
"""
# What a driver passes: with the state of its own disk, and as a job on other nodes has it.
DRIVER = """
import json
from harness.fingerprint import guard, identity, installed
from harness.profiles import load
there = [installed.read(name, installed.site_packages()) for name in installed.HASHED]
contents, states = {d.name: d.content for d in there}, {d.name: installed.state(d) for d in there}
parts = identity.parts(load("cpu"), None)
given = [guard.Expected(profile="cpu", parts=parts, contents=contents, states=s) for s in (states, {})]
print(json.dumps([one.variables()[guard.VARIABLE] for one in given]))
"""


@dataclass(frozen=True, kw_only=True)
class Copy:
    """An environment whose files are shared with the real one: they are replaced, never written to."""

    path: Path
    root: Path
    events: Path

    @property
    def site(self) -> Path:
        return self.path / SITE

    def run(self, code: str, **variables: str) -> Any:
        environ = {
            **os.environ,
            "VERLOCK_ROOT": str(self.root),
            "VERLOCK_EVENTS": str(self.events),
            **variables,
        }
        environ["PYTHONPATH"] = os.pathsep.join(filter(None, [variables.get("PYTHONPATH"), str(ROOT)]))
        command = [self.path / "bin" / "python", "-P", "-c", code]
        done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    base = tmp_path_factory.mktemp("copy")
    shutil.copytree(sys.prefix, base / "cpu", symlinks=True, copy_function=os.link)
    for name in ("profiles", "docker"):
        shutil.copytree(ROOT / name, base / "root" / name)
    return Copy(path=base / "cpu", root=base / "root", events=base / "events.jsonl")


def rewritten(path: Path, content: bytes) -> None:
    beside = path.with_name(f"{path.name}.beside")
    beside.write_bytes(content)
    beside.replace(path)


@pytest.fixture
def copy(whole: Copy) -> Iterator[Copy]:
    """The copy; what a test did to the files it names below is undone."""
    paths = [whole.site / name for name in ("verl/protocol.py", "torch/_utils.py", "ray/_raylet.so", RECORD)]
    paths += [whole.root / "profiles" / "cpu.yaml", whole.root / LOCK]
    for path in paths:
        os.link(path, path.with_name(f"{path.name}.kept"))
    yield whole
    for path in paths:
        kept = path.with_name(f"{path.name}.kept")
        kept.replace(path)  # which does nothing where both are still one file
        kept.unlink(missing_ok=True)
    shutil.rmtree(whole.site / "trl-1.0.dist-info", ignore_errors=True)
    (whole.root / "fingerprint.json").unlink(missing_ok=True)
    whole.events.unlink(missing_ok=True)


@pytest.fixture
def passed(copy: Copy) -> list[str]:
    """The variable as a worker on the driver's node gets it, and on another one."""
    return list(copy.run(DRIVER))


LOCK = "docker/rendered/cpu/requirements.lock"
RECORD = next(path.name for path in (Path(sys.prefix) / SITE).glob("torch-*.dist-info")) + "/RECORD"


def a_byte(path: Path) -> None:
    content = path.read_bytes()
    rewritten(path, content[:-1] + bytes([content[-1] ^ 1]))


def entry(path: Path) -> None:
    """RECORD changed with the file that it lists, as someone does who knows of it."""
    text = path.read_text()
    rewritten(path, text.replace("torch/_utils.py,sha256=", "torch/_utils.py,sha256=x", 1).encode())


# What is done, to what, and what is said of it.
SPOILT: list[tuple[Callable[[Copy], object], str]] = [
    (lambda copy: a_byte(copy.site / "verl/protocol.py"), "verl/protocol.py: verl: this file"),
    (lambda copy: a_byte(copy.site / "torch/_utils.py"), "torch/_utils.py: torch: this file"),
    (lambda copy: a_byte(copy.site / "ray/_raylet.so"), "ray/_raylet.so: ray: this file"),
    (lambda copy: (copy.site / "torch/_utils.py").unlink(), "torch/_utils.py: torch: this file is gone"),
    (lambda copy: entry(copy.site / RECORD), "torch here is another build than the driver's"),
    (lambda copy: (copy.site / "trl-1.0.dist-info").mkdir(), "trl 1.0 is installed, and the lock does not"),
    (lambda copy: a_byte(copy.root / LOCK), "the lock here is not that of the driver"),
    (
        lambda copy: rewritten(
            copy.root / "profiles/cpu.yaml",
            (copy.root / "profiles/cpu.yaml")
            .read_bytes()
            .replace(b"memory_gib: 16\n", b"memory_gib: 17\n", 1),
        ),
        "the profile here is not that of the driver",
    ),
]


@pytest.mark.parametrize("node", [0, 1], ids=["the driver's node", "another node"])
@pytest.mark.parametrize(("spoil", "said"), SPOILT)
def test_what_differs_is_named(
    copy: Copy, passed: list[str], spoil: Callable[[Copy], object], said: str, node: int
) -> None:
    spoil(copy)
    told = copy.run(CHECK, VERLOCK_FINGERPRINT=passed[node])
    assert told["code"] == 13, told
    assert said in told["said"]
    (event,) = [json.loads(line) for line in copy.events.read_text().splitlines()]
    assert event["kind"] == "environment_differs"
    assert event["problems"]


def test_nothing_spoilt_passes_on_any_node(copy: Copy, passed: list[str]) -> None:
    here, there = (copy.run(CHECK, VERLOCK_FINGERPRINT=text) for text in passed)
    assert here["touched"] is None
    assert here["passed"]["forked"] is there["passed"]["forked"] is False
    assert not copy.events.exists()


def test_a_file_written_anew_with_the_same_content_passes_but_is_not_forked(
    copy: Copy, passed: list[str]
) -> None:
    """What the fork server imported may have been read in between."""
    path = copy.site / "torch/_utils.py"
    rewritten(path, path.read_bytes())
    told = copy.run(CHECK, VERLOCK_FINGERPRINT=passed[0])
    assert told["touched"] == "files of torch were written to since they were checked"
    assert "code" not in told


def test_a_module_from_elsewhere_is_refused(copy: Copy, passed: list[str], tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").touch()
    told = copy.run(CHECK, VERLOCK_FINGERPRINT=passed[0], PYTHONPATH=str(tmp_path))
    assert told["code"] == 13
    assert f"torch is imported from {tmp_path}" in told["said"]


def test_without_a_driver_nothing_is_asked(copy: Copy) -> None:
    assert copy.run(CHECK, VERLOCK_FINGERPRINT="") == {"touched": None, "passed": None}


@pytest.mark.parametrize("text", ["x", "{}", "[1]", '{"profile": "cpu", "no": 1}'])
def test_a_variable_that_cannot_be_read_is_refused(copy: Copy, text: str) -> None:
    told = copy.run(CHECK, VERLOCK_FINGERPRINT=text)
    assert told["code"] == 13
    assert "VERLOCK_FINGERPRINT cannot be read" in told["touched"]


# --- the driver -------------------------------------------------------------------------------------------

VERIFY = """
import json
from harness.errors import VerlockError
from harness.fingerprint.identity import fingerprint
from harness.fingerprint.verify import verify
from harness.profiles import load
try:
    verify(load("cpu"), overlay=False)
    print(json.dumps(fingerprint(load("cpu"), None)))
except VerlockError as error:
    print(json.dumps({"code": error.exit_code, "said": str(error)}))
"""


def test_the_driver_names_a_lock_that_was_altered_after_the_environment_was_made(copy: Copy) -> None:
    a_byte(copy.root / LOCK)
    told = copy.run(VERIFY)
    assert told["code"] == 13
    assert f"{copy.root / LOCK}: the lock was altered after the environment was made from it" in told["said"]


def test_the_driver_names_a_changed_file_of_each_kind_at_once(copy: Copy) -> None:
    for name in ("verl/protocol.py", "torch/_utils.py", "ray/_raylet.so"):
        a_byte(copy.site / name)
    (copy.site / "trl-1.0.dist-info").mkdir()
    (copy.site / "trl-1.0.dist-info" / "METADATA").write_text("Name: trl\nVersion: 1.0\n")
    told = copy.run(VERIFY)
    assert all(f"{copy.site}/{name}" in told["said"] for name in ("verl/protocol.py", "torch/_utils.py"))
    assert "ray/_raylet.so" in told["said"]
    assert "trl 1.0 is installed" in told["said"]


def sha(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_in_an_image_what_it_was_built_from_is_read_again(copy: Copy) -> None:
    parts = {
        "base": "sha256:1",
        "harness": content(ROOT / "harness"),
        "profiles": content(copy.root / "profiles"),
        "overrides.yaml": sha(copy.root / "docker/rendered/cpu/overrides.yaml"),
        "only-at-the-build.lock": "0" * 64,
    }
    record = copy.root / "fingerprint.json"
    record.write_text(json.dumps(parts))
    told = copy.run(VERIFY)
    assert told["image"] == f"sha256:{sha(record)}"
    assert told["base"] == "sha256:1"
    for name in ("harness", "profiles", "overrides.yaml"):
        record.write_text(json.dumps(parts | {name: "0" * 64}))
        told = copy.run(VERIFY)
        assert told["code"] == 13
        assert f"{name}: this is not what the image was built from" in told["said"]


def test_the_climb_and_the_command_refuse_a_changed_file_of_verl(copy: Copy, tmp_path: Path) -> None:
    a_byte(copy.site / "verl/protocol.py")
    command = [copy.path / "bin" / "python", "-P", "-m", "harness"]
    for words in (["climb", "--to", "env", "--runs", str(tmp_path / "runs")], ["fingerprint"]):
        done = subprocess.run(
            [*command, *words, "--json"],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 13, done.stderr
        assert f"{copy.site}/verl/protocol.py" in json.loads(done.stdout)["error"]["problems"][0]["where"]
    failure = json.loads((tmp_path / "runs" / "latest" / "run.json").read_text())["failure"]
    assert failure["class"] == "environment"
    assert "verl/protocol.py" in failure["cause"]
