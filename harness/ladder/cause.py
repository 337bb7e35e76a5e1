"""What a failed run's own words mean: the diagnose room's answer, put on the error that ends the climb."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from harness.diagnose import catalogue, host
from harness.diagnose.diagnose import diagnose_lines
from harness.diagnose.diagnosis import Diagnosis
from harness.diagnose.lines import Line, parse
from harness.diagnose.match import Evidence
from harness.errors import RungFailedError, TrainerError, VerlockError
from harness.evidence.record import RunRecord

Told = TypeVar("Told", bound=VerlockError)


def of_log(record: RunRecord, log: Path, begin: int, others: Sequence[Path]) -> Diagnosis:
    """Diagnose what a child wrote to ``log`` from byte ``begin`` on, and Ray's logs of its workers."""
    with log.open("rb") as file:
        file.seek(begin)
        lines = parse(file.read().decode("utf-8", errors="replace"), path=str(log))
    for path in others:
        lines += parse(path.read_text(encoding="utf-8", errors="replace"), path=str(path))
    return _diagnose(record, lines)


def of_exception(record: RunRecord, error: BaseException) -> Diagnosis:
    """Diagnose an exception of this process; its whole stack goes to the run's log."""
    stack = "".join(traceback.format_exception(error))
    with (record.folder / "output.log").open("a", encoding="utf-8") as file:
        file.write(stack)
    return _diagnose(record, parse(stack, path="output.log"))


def _diagnose(record: RunRecord, lines: Sequence[Line]) -> Diagnosis:
    evidence = Evidence(host=host.here(), verl=record.run.versions.get("verl"))
    return diagnose_lines(lines, catalogue.load(Path()), evidence)


def explained(error: Told, diagnosis: Diagnosis) -> Told:
    """The error with the diagnosis's class, scope and name; an unknown failure keeps the error's own."""
    if diagnosis.known and diagnosis.failure_class != "unknown" and diagnosis.scope != "unknown":
        error.failure_class = diagnosis.failure_class
        error.also = diagnosis.also
        error.scope = diagnosis.scope
    error.signature = diagnosis.signature
    return error


def of_trainer(told: Diagnosis, ended: str, *, log: Path, todo: str) -> TrainerError:
    """The error of a trainer that failed, in the diagnosis's words; ``ended`` where it has none."""
    error = TrainerError(
        told.raised.text or ended,
        where=f"{told.file}:{told.line}" if told.file else str(log),
        why=told.cause if told.known else ended,
        todo=todo,
    )
    return explained(error, told)


def named(record: RunRecord, error: VerlockError) -> None:
    """Give a rung's own verdict the name of its kind: a loss that is NaN is one, whoever finds it."""
    if isinstance(error, RungFailedError) and error.signature is None:
        said = _diagnose(record, parse(f"RungFailedError: {error.problems[0].what}"))
        if said.known and said.failure_class == error.failure_class:
            error.signature = said.signature
