"""Tier B keeps its results: docs/acceptance/issue-<N>.json, with the commit that each test ran on.

The file is replaced after every test, so that a run that was stopped goes on where it was: a test that
passed on the same commit, with nothing uncommitted, is not run again unless ``--fresh`` asks for it. What a
test measured (``record_property``) stands beside its outcome. Committing results does not make them old:
the commit is the last one that changed anything outside docs/acceptance.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from harness.build.image import built
from harness.build.image.make import RECORD, place
from harness.errors import VerlockError
from harness.profiles import load, root

FOLDER = "docs/acceptance"
SCHEMA_VERSION = 1


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("acceptance")
    group.addoption("--issue", type=int, help="the issue whose proofs run: test_issue_<N>*.py")
    group.addoption("--fresh", action="store_true", help="run again what passed on this commit")


def pytest_configure(config: pytest.Config) -> None:
    issue = config.getoption(
        "issue", default=None
    )  # None too in a plain `pytest`, which loads this file late
    if issue is not None:
        config.pluginmanager.register(Results(config.rootpath, issue, fresh=config.getoption("fresh")))


def git(root: Path, *arguments: str) -> str:
    everything_else = ("--", ".", f":(exclude){FOLDER}")
    command = ["git", *arguments, *everything_else]
    return subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout.strip()


def machine() -> dict[str, Any]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cores": os.cpu_count(),
        "memory_gib": round(memory / 2**30, 1),
        "platform": platform.platform(),
        "python": platform.python_version(),
    }


class Results:
    """The results of one issue: what an earlier run left, and what this one adds."""

    def __init__(self, root: Path, issue: int, *, fresh: bool) -> None:
        self.issue = issue
        self.fresh = fresh
        self.path = root / FOLDER / f"issue-{issue}.json"
        self.commit = git(root, "log", "-1", "--format=%H")
        self.dirty = bool(git(root, "status", "--porcelain"))
        self.tests: dict[str, dict[str, Any]] = {}
        if self.path.is_file():
            self.tests = {test["name"]: test for test in json.loads(self.path.read_text())["tests"]}
        self.running: dict[str, dict[str, Any]] = {}
        self.kept = 0

    def still_holds(self, name: str) -> bool:
        test = self.tests.get(name, {})
        same = test.get("commit") == self.commit and not test.get("dirty") and not self.dirty
        return same and test.get("outcome") == "passed" and not self.fresh

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Leave the tests of this issue that have no result yet; forget results of tests that are gone."""
        wanted = re.compile(rf"test_issue_{self.issue}(_\w+)?\.py")
        chosen = [item for item in items if wanted.fullmatch(item.path.name)]
        names = {item.nodeid for item in chosen}
        self.tests = {name: test for name, test in self.tests.items() if name in names}
        todo = [item for item in chosen if not self.still_holds(item.nodeid)]
        self.kept = len(chosen) - len(todo)
        config.hook.pytest_deselected(items=[item for item in items if item not in todo])
        items[:] = todo

    def pytest_report_collectionfinish(self) -> str:
        return f"{self.path}: {self.kept} passed earlier on {self.commit[:12]} and are not run again"

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add up setup, call and teardown; the worst outcome of the three counts."""
        test = self.running.setdefault(
            report.nodeid, {"name": report.nodeid, "outcome": "passed", "seconds": 0.0}
        )
        test["seconds"] = round(test["seconds"] + report.duration, 2)
        if report.outcome != "passed" and test["outcome"] != "failed":
            test["outcome"] = report.outcome
            test["why"] = report.longreprtext.splitlines()[-1] if report.longreprtext else ""
        if report.when == "teardown":
            test |= {"commit": self.commit, "dirty": self.dirty, "measured": dict(report.user_properties)}
            self.tests[report.nodeid] = self.running.pop(report.nodeid)
            self.write()

    @pytest.hookimpl(wrapper=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Iterator[None]:
        """Having nothing left to do is success, not pytest's "no tests ran"."""
        if session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and self.kept:
            session.exitstatus = pytest.ExitCode.OK
        yield

    def write(self) -> None:
        document = {
            "schema_version": SCHEMA_VERSION,
            "issue": self.issue,
            "command": f"nox -s acceptance -- {self.issue}",
            "commit": self.commit,
            "written": datetime.now(UTC).isoformat(timespec="seconds"),
            "machine": machine(),
            "tests": sorted(self.tests.values(), key=lambda test: test["name"]),
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self.path.with_suffix(".tmp")
        temporary.write_text(json.dumps(document, indent=2) + "\n")
        temporary.replace(self.path)


@pytest.fixture(scope="session")
def engine() -> dict[str, str]:
    """Where the machine's own engine listens, as variables; it is started if need be."""
    done = subprocess.run([root() / ".ci" / "engine"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return {"DOCKER_HOST": done.stdout.strip()}


@pytest.fixture(scope="session")
def image(engine: dict[str, str]) -> Callable[[str], dict[str, Any]]:
    """The record of a profile's image, built unless it is there and of this checkout."""

    def record(short: str) -> dict[str, Any]:
        profile = load(short)
        try:
            built.check(built.read(profile))
        except VerlockError:
            command = [sys.executable, "-m", "harness", "build", profile.name, "--frugal"]
            variables = {**os.environ, **engine}
            done = subprocess.run(
                command, cwd=root(), env=variables, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stderr[-3000:]
        return dict(json.loads((place(profile) / RECORD).read_text()))

    return record
