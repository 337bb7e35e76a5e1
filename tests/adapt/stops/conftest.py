"""A module of the user's, and processes that load it with a place to stop."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from harness.adapt.stops.place import VARIABLE, Place
from harness.evidence import events

ROOT = Path(__file__).parents[3]
MODULE = '''"""A reward."""

from __future__ import annotations

import asyncio
import threading


def score(answer, truth):
    """Half a point for trying."""
    points = {"try": 0.5,
              "right": 1.0}
    if answer == truth:
        return points["right"]
    elif answer:
        # a comment
        return points["try"]
    return 0.0


async def later(answer):
    await asyncio.sleep(0)
    return score(answer, "42")
'''
LINE = 1 + MODULE.splitlines().index('        return points["try"]')


@dataclass(kw_only=True)
class Started:
    """A process that loads the module; its events."""

    process: subprocess.Popen[str]
    folder: Path
    seen: list[dict[str, Any]] = field(default_factory=list)

    def event(self, kind: str) -> dict[str, Any]:
        """Wait for the event."""
        until = time.monotonic() + 30
        while time.monotonic() < until:
            self.seen = events.read(self.folder / "events.jsonl")
            found = [event for event in self.seen if event["kind"] == kind]
            if found:
                return found[0]
            if self.process.poll() not in {None, 0}:
                break
            time.sleep(0.05)
        raise AssertionError((kind, self.seen, self.process.poll()))

    def said(self) -> str:
        """Its end: what it printed."""
        out, err = self.process.communicate(timeout=30)
        assert self.process.returncode == 0, err
        return out


Start = Callable[..., Started]


@pytest.fixture
def module(tmp_path: Path) -> Path:
    path = tmp_path / "judge.py"
    path.write_text(MODULE)
    return path


@pytest.fixture
def start(tmp_path: Path, module: Path) -> Iterator[Start]:
    """Run code that finds ``judge`` importable, in a process with the place in its environment."""
    running: list[subprocess.Popen[str]] = []

    def begin(code: str, *, line: int = LINE, title: str = "WorkerDict", **place: Any) -> Started:
        wanted = Place(file=str(module.resolve()), line=line, **place)
        head = "from harness.adapt.stops import install\ninstall.install()\n"
        process = subprocess.Popen(
            [sys.executable, "-c", head + code],
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join([str(ROOT), str(tmp_path)]),
                VARIABLE: wanted.text(),
                events.FILE_VARIABLE: str(tmp_path / "events.jsonl"),
                events.ROLE_VARIABLE: f"ray::{title}",
                "RANK": "1",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        running.append(process)
        return Started(process=process, folder=tmp_path)

    yield begin
    for process in running:
        process.kill()
        process.communicate()
