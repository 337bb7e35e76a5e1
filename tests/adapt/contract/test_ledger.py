"""A ledger on disk: whole whenever the process ends, even by a kill, and one for each process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch comes with the lock")

from harness.adapt.contract.terms import Terms
from harness.ladder import precision
from harness.profiles import load

ROOT = Path(__file__).parents[3]
# Counts, says what it counted, and then only waits: as a Ray worker does until the raylet kills it.
WORKER = """
import os, sys, time, torch
from harness.adapt.contract import ledger
from harness.adapt.contract.terms import Terms
book = ledger.begin(Terms.parse(os.environ["VERLOCK_TERMS"]))
for _ in range(50):
    torch.ones(4)
if sys.argv[1] == "fork":
    child = os.fork()
    if child == 0:
        ledger.begin(book.terms)
        for _ in range(7):
            torch.ones(4)
        ledger.current().stop()
        os._exit(0)
    os.waitpid(child, 0)
print(book.document()["operations"], flush=True)
time.sleep(0 if sys.argv[1] == "ends" else 60)
"""


def start(folder: Path, how: str) -> subprocess.Popen[str]:
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "VERLOCK_EVENTS": str(folder / "events.jsonl"),
        "VERLOCK_TERMS": Terms.of(load("p40"), "enforce").text(),
    }
    command = [sys.executable, "-W", "ignore", "-c", WORKER, how]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def books(folder: Path, operations: int) -> list[dict[str, Any]]:
    """The ledgers, as soon as one holds so many operations."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        found = precision.ledgers(folder)
        if any(book["operations"] == operations for book in found):
            return found
        time.sleep(0.05)
    return precision.ledgers(folder)


def test_a_killed_process_leaves_all_that_it_counted(tmp_path: Path) -> None:
    with start(tmp_path, "waits") as worker:
        assert worker.stdout is not None
        counted = int(worker.stdout.readline())
        (book,) = books(tmp_path, counted)
        worker.send_signal(signal.SIGKILL)
    assert counted == 50
    assert (book["pid"], book["operations"]) == (worker.pid, 50)
    assert book["by_dtype"] == {"float32": 50}
    assert precision.ledgers(tmp_path) == [book]


def test_a_process_that_ends_writes_its_end(tmp_path: Path) -> None:
    with start(tmp_path, "ends") as worker:
        assert worker.wait(timeout=120) == 0
    (book,) = precision.ledgers(tmp_path)
    assert book["operations"] == 50


def test_a_forked_child_has_a_ledger_of_its_own(tmp_path: Path) -> None:
    with start(tmp_path, "fork") as worker:
        assert worker.stdout is not None
        counted = int(worker.stdout.readline())
        found = books(tmp_path, counted)
        worker.kill()
    assert sorted(book["operations"] for book in found) == [7, 50]


def write(folder: Path, pid: int, **fields: Any) -> None:
    (folder / precision.LEDGERS).mkdir(exist_ok=True)
    empty: dict[str, Any] = {
        name: {} for name in ("by_dtype", "by_device", "attention", "attention_kernels", "autocast")
    }
    book = {
        "pid": pid,
        "role": "worker",
        "operations": 0,
        "forbidden": 0,
        "read_from_forbidden": 0,
        **empty,
        **fields,
    }
    (folder / precision.LEDGERS / f"{pid}.json").write_text(json.dumps(book))


def test_all_processes_add_up(tmp_path: Path) -> None:
    write(tmp_path, 1, operations=5, by_dtype={"float32": 5}, attention={"sdpa": 1})
    write(
        tmp_path, 2, operations=9, by_dtype={"float32": 4, "bfloat16": 6}, forbidden=6, attention={"sdpa": 2}
    )
    found = precision.total(precision.ledgers(tmp_path))
    assert (found["operations"], found["forbidden"]) == (14, 6)
    assert found["by_dtype"] == {"bfloat16": 6, "float32": 9}
    assert found["attention"] == {"sdpa": 3}


def test_a_process_without_a_ledger_is_named(tmp_path: Path) -> None:
    """Of what was not looked at nobody can say that it was clean."""
    write(tmp_path, 1)
    happened = [{"kind": "activated", "pid": pid, "role": f"ray::Worker{pid}"} for pid in (1, 2)]
    assert precision.uncounted(tmp_path, happened) == ["ray::Worker2 (pid 2)"]
    assert precision.uncounted(tmp_path, happened[:1]) == []
