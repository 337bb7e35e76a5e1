"""This machine: its facts are read, what killed climbs left is tidied, and nothing else is touched."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest

from harness.build.doctor import facts as model
from harness.build.doctor import fix, gather
from harness.build.doctor.command import measure
from harness.build.doctor.evaluate import evaluate
from harness.build.doctor.finding import CheckId, Finding
from harness.console import Output
from harness.evidence.record import RunRecord
from harness.profiles import load

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="/proc and /dev/shm are Linux's")


@LINUX
def test_the_facts_are_those_of_this_machine(tmp_path: Path) -> None:
    facts = gather.gather(None, tmp_path)
    assert facts.memory.total == psutil.virtual_memory().total
    assert facts.host.cpus == len(os.sched_getaffinity(0))
    assert facts.shm is not None
    assert facts.leftovers.processes == 0
    file = tmp_path / "facts.json"
    file.write_text(gather.write(facts))
    assert model.load(file) == facts


def test_the_environment_is_asked_through_its_own_python() -> None:
    made = gather.ask(Path(sys.executable))
    assert made.python.startswith("3.11.")
    assert made.torch is not None
    assert made.torch.version == made.packages["torch"]
    assert made.ray == made.packages["ray"]
    facts = gather.gather(None, Path("runs")).model_copy(update={"environment": made})
    against = measure(load("cpu"), facts)
    ids = {one.id for one in evaluate(facts, against)}
    assert not {one for one in ids if one.startswith("environment.")}


def test_a_python_that_is_broken_is_a_finding(tmp_path: Path) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho 'Fatal Python error: init_fs_encoding' >&2\nexit 1\n")
    broken.chmod(broken.stat().st_mode | stat.S_IXUSR)
    made = gather.ask(broken)
    assert made.torch_error == "Fatal Python error: init_fs_encoding"
    empty = gather.ask(_without_packages(tmp_path))
    assert (empty.torch, empty.torch_error) == (None, "ModuleNotFoundError: No module named 'torch'")


def _without_packages(folder: Path) -> Path:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "empty"], check=True)
    return folder / "empty" / "bin" / "python"


@pytest.mark.parametrize(
    ("said", "driver", "capability"),
    [
        ("Tesla P40, 550.163.01, 23040, 12, 6.1", "550.163.01", "6.1"),
        ("Tesla P40, 470.256.02, 22919, 0", "470.256.02", None),
    ],
)
def test_nvidia_smi_is_read_with_and_without_the_capability(
    said: str, driver: str, capability: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver before 510 refuses the question for compute_cap; the program is a stand-in that says so."""
    refuse = 'case "$1" in *compute_cap*) echo "Field compute_cap is not valid"; exit 2 ;; esac\n'
    smi = tmp_path / "nvidia-smi"
    smi.write_text(f"#!/bin/sh\n{'' if capability else refuse}echo '{said}'\n")
    smi.chmod(smi.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    found = gather.gather(None, tmp_path).nvidia
    assert (found.driver, found.cards[0].name, found.cards[0].capability) == (driver, "Tesla P40", capability)


def test_what_killed_climbs_left_is_found_and_tidied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    (tmp_path / "tmp" / f"vl-{gone.pid}-x").mkdir(parents=True)
    (tmp_path / "tmp" / f"vl-{os.getpid()}-x").mkdir()
    runs = tmp_path / "runs"
    assert _leftovers(runs) == (0, 1)
    left = _killed_climb(runs)
    try:
        assert _leftovers(runs) == (1, 1)
        finding = Finding(id="leftovers", severity="warning", what="w", reason="r", remedy="r")
        done = fix.apply([finding], load("cpu"), runs=runs, output=Output(as_json=True))
        assert done == ("ended 1 processes and removed 1 Ray folders of killed climbs",)
        assert _leftovers(runs) == (0, 0)
        assert (tmp_path / "tmp" / f"vl-{os.getpid()}-x").exists()
    finally:
        left.kill()
        left.wait()


def _leftovers(runs: Path) -> tuple[int, int]:
    found = gather.gather(None, runs).leftovers
    return found.processes, found.ray_folders


def _killed_climb(runs: Path) -> subprocess.Popen[bytes]:
    """A process of a run whose record says that it still runs, and whose climb is no more."""
    record = RunRecord.create(runs, profile="cpu", command=["verlock", "climb"])
    file = record.folder / "run.json"
    document = json.loads(file.read_text())
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    file.write_text(json.dumps({**document, "pid": gone.pid}))
    environ = {**os.environ, **record.environment()}
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], env=environ)


@pytest.mark.parametrize(
    ("ids", "made"),
    [
        (["environment.missing"], ["ensure"]),
        (["environment.missing", "limits.files"], ["ensure"]),
        (["environment.differs"], ["ensure fresh"]),
        (["environment.missing", "gpu.absent"], []),
        (["shm.size"], []),
        (["environment.differs", "environment.forbidden"], ["ensure fresh"]),
    ],
)
def test_only_what_is_safe_is_done_and_each_once(
    ids: list[CheckId], made: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Installing is what a test of the choice must not do: tests/build/test_environment.py does it."""
    calls: list[str] = []

    def ensure(*_: object, output: Output, fresh: bool = False) -> Path:
        calls.append("ensure fresh" if fresh else "ensure")
        return Path()

    monkeypatch.setattr(fix, "ensure", ensure)
    found = [
        Finding(
            id=one,
            severity="error" if one.startswith(("gpu", "environment.d")) else "warning",
            what="w",
            reason="r",
            remedy="r",
        )
        for one in ids
    ]
    done = fix.apply(found, load("cpu"), runs=tmp_path, output=Output(as_json=True))
    assert calls == made
    assert len(done) == len(made)
