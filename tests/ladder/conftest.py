"""Real climbs, each in a process of its own, as a user starts them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from harness.evidence.model import Run, load

ROOT = Path(__file__).parents[2]
FAULTS = ROOT / "tests" / "faults"


@dataclass(frozen=True, kw_only=True)
class Climbed:
    """What a climb left: exit code, both streams, and its runs folder."""

    exit_code: int
    stdout: str
    stderr: str
    runs: Path

    @property
    def document(self) -> dict[str, Any]:
        """The one JSON document on standard output; anything beside it fails here."""
        document: dict[str, Any] = json.loads(self.stdout)
        return document

    @property
    def folder(self) -> Path:
        """The newest run's folder."""
        return (self.runs / "latest").resolve()

    @property
    def run(self) -> Run:
        """The newest run's record."""
        return load(self.folder)

    @property
    def problems(self) -> str:
        """What the error says: each problem's parts in a line."""
        error = self.document["error"]
        assert error["exit_code"] == self.exit_code
        return "\n".join(
            "; ".join(str(part) for part in problem.values() if part) for problem in error["problems"]
        )

    @property
    def failed_rung(self) -> str:
        """The rung that failed; the ones below it passed."""
        *below, last = self.run.rungs
        assert [rung.status for rung in below] == ["passed"] * len(below), self.problems
        assert last.status == "failed", self.run
        assert self.run.failure is not None
        assert self.document["error"]["run"] == str(self.folder.with_name(self.run.id))
        return last.name


Climb = Callable[..., Climbed]


def environment(plugin: str | None, added: Mapping[str, str]) -> dict[str, str]:
    """Ours, with a test's plug-in (a module in tests/faults) for verl to import after the harness's own."""
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(FAULTS)]), **added}
    variables.pop("VERL_USE_EXTERNAL_MODULES", None)
    if plugin:
        variables["VERL_USE_EXTERNAL_MODULES"] = plugin
    return variables


@pytest.fixture(scope="session")
def zygote() -> Iterator[Callable[[dict[str, Any]], int]]:
    """A process with everything slow imported, that forks a climb for each order."""
    server = subprocess.Popen(
        [sys.executable, "-P", str(Path(__file__).with_name("zygote.py"))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert server.stdin is not None
    assert server.stdout is not None

    def order(what: dict[str, Any]) -> int:
        server.stdin.write(json.dumps(what) + "\n")
        server.stdin.flush()
        return int(server.stdout.readline())

    yield order
    with server:  # closes its pipes and waits: it ends with its input
        pass


def _checked(exit_code: int, stdout: str, stderr: str, runs: Path) -> Climbed:
    assert "Traceback" not in stdout + stderr, stderr
    return Climbed(exit_code=exit_code, stdout=stdout, stderr=stderr, runs=runs)


def _climb(tmp_path: Path) -> Climb:
    def run(
        *words: str | Path,
        plugin: str | None = None,
        runs: Path | None = None,
        before: tuple[str, ...] = (),
        seconds: int = 300,
        **added: str,
    ) -> Climbed:
        where = runs or tmp_path / "runs"
        command = [sys.executable, "-P", "-m", "harness", "climb", "--json", "--runs", str(where)]
        done = subprocess.run(
            [*before, *command, *map(str, words)],
            env=environment(plugin, added),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds,
        )
        return _checked(done.returncode, done.stdout, done.stderr, where)

    return run


@pytest.fixture
def climb(tmp_path: Path) -> Climb:
    """Run ``verlock climb --json`` with these words, in a process of its own from the start."""
    return _climb(tmp_path)


@pytest.fixture(scope="session")
def session_climb(tmp_path_factory: pytest.TempPathFactory) -> Climb:
    """The same for a run that many tests look at."""
    return _climb(tmp_path_factory.mktemp("session"))


@pytest.fixture
def warm_climb(zygote: Callable[[dict[str, Any]], int], tmp_path: Path) -> Climb:
    """The same in seconds, forked: for planted faults, of which there are many."""

    def run(*words: str | Path, plugin: str | None = None, **added: str) -> Climbed:
        where, out, err = (tmp_path / name for name in ("runs", "stdout", "stderr"))
        code = zygote(
            {
                "words": ["climb", "--json", "--runs", str(where), *map(str, words)],
                "environment": environment(plugin, added),
                "path": [str(ROOT), str(FAULTS)],
                "cwd": str(tmp_path),
                "stdout": str(out),
                "stderr": str(err),
            }
        )
        return _checked(code, out.read_text(), err.read_text(), where)

    return run
