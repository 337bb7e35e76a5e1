"""``verlock localise``: real runs, as few as can be, until two neighbours differ in one boundary."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from harness.diagnose import boundaries
from harness.diagnose.boundaries import Real
from harness.diagnose.search import Found, search
from harness.errors import DiagnoseError, EnvironmentDiffersError
from harness.evidence import again, given
from harness.evidence.model import Failure, Run, load

# However it is written: 0.001 in one run is 1e-05 in another, and NaN in a third.
_NUMBERS = re.compile(r"[-+]?(?:\d+(?:\.\d+)?(?:[eE][-+]?\d+)?|\b(?:nan|inf)\b)")


@dataclass(frozen=True, kw_only=True)
class Located:
    """The boundary, the two runs that show it, and all that were made."""

    boundary: str | None
    of: tuple[str, ...]
    failing: Path
    passing: Path | None
    made: tuple[Path, ...]


def asked(words: Sequence[str]) -> Path | None:
    """The run folder that is meant; none where these are words of a climb.

    Raises:
        DiagnoseError: they are neither, or both.
    """
    first, *more = words
    if Path(first).is_dir():
        if more:
            raise DiagnoseError(
                f"a run folder and {' '.join(more)}",
                where=first,
                why="a run is climbed again with its own words",
                todo=f"verlock localise {first}; or without it: verlock localise -- {' '.join(more)}",
            )
        return Path(first)
    if not (first.startswith(("-", "~")) or "=" in first):
        raise DiagnoseError(
            f"{first} is neither a run folder nor words of a climb",
            todo="verlock localise runs/latest, or verlock localise -- --from reward --to reward ...",
        )
    return None


def climb(words: Sequence[str], runs: Path) -> Path:
    """Run one climb in a process of its own; returns the folder of its record.

    Raises:
        DiagnoseError: the climb ended before it had a record.
    """
    before = set(runs.glob("*/run.json")) if runs.is_dir() else set()
    command = [sys.executable, "-P", "-m", "harness", "climb", "--json", "--runs", str(runs), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    new = sorted(
        path for path in runs.glob("*/run.json") if path not in before and not path.parent.is_symlink()
    )
    told = [] if new else again.problems(done.stdout)
    if told:
        raise DiagnoseError(*(replace(one, what=f"the climb did not start: {one.what}") for one in told))
    if not new:
        raise DiagnoseError(
            f"verlock climb {' '.join(words)} ended with exit code {done.returncode} and left no record",
            why=(done.stdout + done.stderr).strip()[-600:],
            todo="run it by itself",
        )
    return new[-1].parent


@dataclass(kw_only=True)
class Localiser:
    """One search: the failing run, and the folder of each run that was made."""

    failing: Path
    runs: Path
    tell: Callable[[str], None]
    run_climb: Callable[[Sequence[str], Path], Path] = climb
    made: dict[frozenset[str], Path] = field(default_factory=dict)

    def locate(self) -> Located:
        """Make the runs.

        Raises:
            DiagnoseError: nothing failed, or nothing can be toggled.
            EnvironmentDiffersError: a file of the failing run was edited since.
        """
        run = load(self.failing)
        failure = _failure(run)
        if edited := list(given.changed(run.given)) if run.given else []:
            # The failing run would not fail so again: it is no end of the search any more.
            todo = "bring back what it was, or localise the words themselves: verlock localise -- WORDS"
            raise EnvironmentDiffersError(*(replace(one, todo=todo) for one in edited))
        real = boundaries.of_run(run)
        names = [boundary.name for boundary in real]
        if not names:
            raise DiagnoseError(
                "nothing of this run can be toggled: all of it is minimal",
                where=str(self.failing),
                todo=f"`verlock diagnose {self.failing}` says what is known of the failure itself",
            )
        self.made[frozenset(names)] = self.failing
        self.tell(f"{boundaries.failed_rung(run)} failed; {len(names)} boundaries: {', '.join(names)}")
        found = search(names, lambda chosen: self._fails(run, real, chosen, failure))
        return self._located(found, names)

    def _fails(self, run: Run, real: Sequence[Real], chosen: frozenset[str], failure: Failure) -> bool:
        folder = self.run_climb(boundaries.words(run, real, chosen), self.runs)
        self.made[chosen] = folder
        came = same(failure, load(folder).failure)
        shown = ", ".join(b.name for b in real if b.name in chosen) or "nothing"
        self.tell(f"  {'fails' if came else 'passes'} with {shown} real: {folder}")
        return came

    def _located(self, found: Found, names: Sequence[str]) -> Located:
        return Located(
            boundary=found.boundary,
            of=tuple(names),
            failing=self.made[found.failing],
            passing=self.made[found.passing] if found.passing is not None else None,
            made=tuple(folder for folder in self.made.values() if folder != self.failing),
        )


def _failure(run: Run) -> Failure:
    if run.failure is None:
        boundaries.failed_rung(run)
        raise DiagnoseError(f"{run.id} failed and says nothing of it", todo="climb it again")
    return run.failure


def same(wanted: Failure, seen: Failure | None) -> bool:
    """Whether it is the failure that is looked for: another one, made by toggling, is not it."""
    if seen is None or seen.signature != wanted.signature:
        return False
    first, other = (_NUMBERS.sub("#", f.cause.splitlines()[0].split("/")[-1]) for f in (wanted, seen))
    return seen.failure_class == wanted.failure_class and (
        first == other or wanted.signature not in {"unknown", "RungFailedError", "TrainerError"}
    )
