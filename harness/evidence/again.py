"""One more climb, in a process of its own: the words that a user types, and the record that it left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.errors import Problem, RecordError
from harness.evidence import given
from harness.evidence.model import Run
from harness.fingerprint.lock import marker


def climb(
    words: Sequence[str],
    runs: Path,
    *,
    folder: Path | None = None,
    variables: Mapping[str, str] | None = None,
    checkout: Path | None = None,
) -> Path:
    """Run ``verlock WORDS`` and return the folder of its record, whatever it came to.

    Args:
        words: the command and its options, with ``--runs`` among them.
        runs: where those words say that the record goes.
        folder: where it is started; here if not given.
        variables: those that steer verl, in place of this process's own.
        checkout: the verl that the words lay over the locked one.

    What it says on its way goes to standard error, as this process's own progress.

    Raises:
        RecordError: it ended before it had a record.
    """
    before = set(records(runs))
    command = [sys.executable, "-P", "-m", "harness", *words[:1], "--json", *words[1:]]
    done = subprocess.run(
        command,
        cwd=folder,
        env=_environment(variables) | _path(checkout),
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    new = [path for path in records(runs) if path not in before]
    if not new:
        raise RecordError(
            f"verlock {' '.join(words)} ended with exit code {done.returncode} and left no record",
            why=_said(done.stdout),
            todo="run it by itself",
        )
    return new[-1]


def records(runs: Path) -> list[Path]:
    """The folders of all records, the oldest first."""
    found = (path.parent for path in runs.glob("*/run.json")) if runs.is_dir() else ()
    return sorted(path for path in found if not path.is_symlink())


def source(run: Run) -> Path | None:
    """The verl checkout that the run laid over the locked one."""
    name = run.settings.get("verl_source")
    return Path(str(name)) if name else None


def _environment(variables: Mapping[str, str] | None) -> dict[str, str]:
    if variables is None:
        return dict(os.environ)
    mine = given.variables(os.environ)
    return {name: value for name, value in os.environ.items() if name not in mine} | dict(variables)


def _path(checkout: Path | None) -> dict[str, str]:
    """On the host the climb lays it over itself, when it enters the environment; here is one already."""
    if checkout is None or marker() is None:
        return {}
    before = os.environ.get("PYTHONPATH")
    return {"PYTHONPATH": os.pathsep.join([str(checkout), *([before] if before else [])])}


def _said(text: str) -> str:
    """The error of a command that was asked for JSON."""
    return "; ".join(problem.what for problem in problems(text)) or text.strip()[-600:] or "it said nothing"


def problems(text: str) -> list[Problem]:
    """Those in the error document that a command printed; none where it printed something else."""
    try:
        found = json.loads(text)["error"]["problems"]
        return [Problem(**problem) for problem in found]
    except (ValueError, KeyError, TypeError):
        return []
