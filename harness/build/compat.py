"""``verlock compat``: climbs with each release of verl that a profile has a lock for, one by one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.build import files
from harness.console import Output
from harness.errors import Problem
from harness.evidence.matrix import Matrix, Row, markdown, row
from harness.fingerprint import lock
from harness.profiles import Profile, load, releases, root

NAMES = ("compat.json", "compat.md")
COMMAND = "nox -s compat"


def climbed(name: str, given: Sequence[str], *, rungs: Sequence[str], output: Output) -> Matrix:
    """Climb with each of the releases ``given``, or all, and say what came of it.

    Raises :class:`UnknownVerlError` before anything is started.
    """
    profile = load(name)
    chosen = [releases.at(profile, verl) for verl in given or releases.versions(profile)]
    rows = tuple(_climb(one, rungs, output) for one in chosen)
    return Matrix(profile=profile.name, command=COMMAND, commit=_commit(), rungs=tuple(rungs), rows=rows)


def publish(matrix: Matrix, folder: Path) -> None:
    """Write the matrix as JSON and as a table, whole or not at all."""
    texts = (matrix.model_dump_json(indent=1) + "\n", markdown(matrix))
    for file, text in zip(NAMES, texts, strict=True):
        files.write(folder / file, text)


def _climb(profile: Profile, rungs: Sequence[str], output: Output) -> Row:
    verl = profile.software.verl
    output.line(f"verl {verl}:", style="bold")
    with tempfile.TemporaryDirectory(prefix="verlock-compat-") as runs:
        asked = ["climb", "--profile", profile.stem, "--verl", verl, "--from", rungs[0], "--to", rungs[-1]]
        command = [sys.executable, "-P", "-m", "harness", *asked, "--json", "--runs", runs]
        environment = {**os.environ, "PYTHONPATH": str(root())}
        # Its progress goes to our standard error as it comes; the document is kept.
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False)
        document = _document(done.stdout, Path(runs))
    return row(verl, rungs, document, done.returncode, lock.named(profile))


def _document(text: str, runs: Path) -> dict[str, Any]:
    """What the climb printed; of one that failed, the record that it left, with the error beside it."""
    try:
        printed = json.loads(text)
    except ValueError:
        printed = {}
    record = next(iter(sorted(runs.glob("*/run.json"))), None)
    kept = json.loads(record.read_text(encoding="utf-8")) if record is not None else {}
    return {**printed, **kept}


def _commit() -> str | None:
    done = subprocess.run(
        ["git", "-C", str(root()), "log", "-1", "--format=%H"], capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or None


def problems(matrix: Matrix) -> list[Problem]:
    """Each release that did not pass, with the first rung that it did not."""
    return [_problem(one) for one in matrix.rows if not one.passed]


def _problem(one: Row) -> Problem:
    name, cell = next((n, c) for n, c in one.cells.items() if c.verdict != "passed")
    return Problem(
        what=f"verl {one.verl} does not pass the rung {name}",
        where=one.lock,
        why=cell.told or None,
        todo=f"climb it alone, and keep the record: verlock climb --verl {one.verl} --to {name}",
    )
