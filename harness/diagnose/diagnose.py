"""``verlock diagnose``: logs or a run folder in, one diagnosis out. Reads files; runs nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from harness.diagnose import catalogue, host
from harness.diagnose.catalogue import Catalogue
from harness.diagnose.diagnosis import Diagnosis
from harness.diagnose.extract import extract
from harness.diagnose.host import Host
from harness.diagnose.judge import judge
from harness.diagnose.lines import Line, read
from harness.diagnose.match import Evidence, match
from harness.errors import DiagnoseError, InterruptedRunError, Problem, VerlockError
from harness.evidence import events
from harness.evidence.model import Run, load
from harness.profiles.load import load as load_profile

# Ray's logs of a failed run; the raylet's and the GCS's own are about Ray and not about the run.
_RAY_LOGS = (
    "ray-logs/worker-*.err",
    "ray-logs/worker-*.out",
    "*/ray-logs/worker-*.err",
    "*/ray-logs/worker-*.out",
)
HOST_EVENT = "host"
# How many lines are looked at, and the share of bytes in them from which on they are no text.
_LOOKED_AT, _NO_TEXT = 200, 0.1


def diagnose_lines(lines: Sequence[Line], known: Catalogue, evidence: Evidence) -> Diagnosis:
    """The pure part. What the log itself says of its host counts where nothing else is known."""
    told = Evidence(host=evidence.host.over(host.of_log(lines)), verl=evidence.verl)
    found = extract(lines, known)
    best = match(found, known, told)
    return Diagnosis.of(found, best, judge(found, known, told.host) if best is None else None)


def diagnose(
    paths: Sequence[Path],
    *,
    profile: str | None = None,
    given: Host | None = None,
    project: Path | None = None,
) -> Diagnosis:
    """Diagnose log files or one run folder.

    ``given`` are facts of the failing host; ``project`` is where the user's own signatures are looked for.

    Raises:
        DiagnoseError: nothing to read, with each file's reason; or a run of which nothing failed.
    """
    known = catalogue.load(project)
    evidence = Evidence(host=(given or Host()).over(_of_profile(profile)))
    if len(paths) == 1 and paths[0].is_dir():
        return _diagnose_run(paths[0], known, evidence)
    lines = _read_all(paths)
    told = diagnose_lines(lines, known, evidence)
    text = "".join(line.text for line in lines[:_LOOKED_AT])
    if not told.known and text.count("\ufffd") > _NO_TEXT * len(text):
        raise DiagnoseError(
            "this is no text",
            where=", ".join(map(str, paths)),
            why="many of its bytes are no characters, and no failure is told between them",
            todo="give the log itself; unpack what is packed (gzip is read as it is)",
        )
    return told


def _diagnose_run(folder: Path, known: Catalogue, given: Evidence) -> Diagnosis:
    """What the run's files say; where they leave it open, what its record has under ``failure``."""
    logs = _logs(folder)
    try:
        run = load(folder)
    except VerlockError:  # A record that cannot be read is no reason not to read the log.
        return diagnose_lines(_read_all(logs), known, _evidence(folder, None, given))
    if run.status == "passed":
        raise DiagnoseError(
            "nothing failed: this run passed",
            where=str(folder),
            why=f"{len(run.rungs)} rungs passed" + _found(run),
            todo="give a run that failed, or a log",
        )
    evidence = _evidence(folder, run, given)
    lines = [line for path in logs for line in read(path)]
    told = diagnose_lines(lines, known, evidence)
    if told.sure == "certain" or (run.failure and run.failure.signature == told.signature and told.known):
        return told
    if run.failure is not None:
        return Diagnosis.recorded(run.failure, told, str(folder / "run.json"))
    if told.known:
        return told
    rung = run.rungs[-1].name if run.rungs else "its first rung"
    raise DiagnoseError(
        f"nothing failed: this run was interrupted in {rung}",
        where=str(folder),
        why="it was asked to end: Ctrl-C, or SIGTERM"
        if run.exit_code == InterruptedRunError.exit_code
        else "its record has no end: it was killed (SIGKILL, no power), or it still runs",
        todo=f"verlock next --runs {folder.parent} says what to run",
    )


def _found(run: Run) -> str:
    return "; findings: " + ", ".join(dict.fromkeys(f.id for f in run.findings)) if run.findings else ""


def _of_profile(profile: str | None) -> Host:
    return Host() if profile is None else host.of_profile(load_profile(profile))


def _logs(folder: Path) -> list[Path]:
    """A run's output first, then what its workers said only in Ray's own logs."""
    output = folder / "output.log"
    if not output.is_file():
        raise DiagnoseError(
            "the folder holds no output.log",
            where=str(folder),
            why="a run folder has run.json and output.log",
            todo="give a run folder (runs/latest), or log files",
        )
    return [output, *(path for pattern in _RAY_LOGS for path in sorted(folder.glob(pattern)))]


def _evidence(folder: Path, run: Run | None, given: Evidence) -> Evidence:
    """What the run's record and events say of its host and of verl."""
    facts = [e for e in events.read(folder / "events.jsonl") if e.get("kind") == HOST_EVENT]
    recorded = Host.from_event(facts[-1]) if facts else Host()
    if run is None:
        return Evidence(host=given.host.over(recorded))
    try:
        wanted = _of_profile(run.profile)
    except VerlockError:
        wanted = Host()
    return Evidence(host=given.host.over(recorded).over(wanted), verl=run.versions.get("verl"))


def _read_all(paths: Sequence[Path]) -> list[Line]:
    lines: list[Line] = []
    problems: list[Problem] = []
    for path in paths:
        try:
            found = read(path)
        except OSError as error:
            problems.append(
                Problem(what="cannot be read", where=str(path), why=error.strerror, todo="check the path")
            )
            continue
        lines.extend(found)
    if problems:
        raise DiagnoseError(*problems)
    if not any(line.text.strip() for line in lines):
        raise DiagnoseError(
            "nothing to diagnose: empty",
            where=", ".join(map(str, paths)),
            todo="give the failing run's log; on a cluster Ray has more on each node, under /tmp/ray",
        )
    return lines
