"""The verdict about code that could not be imported: the exception, its place, and what it means."""

from __future__ import annotations

import re
from pathlib import Path

from harness.diagnose import catalogue, host
from harness.diagnose.diagnose import diagnose_lines
from harness.diagnose.lines import parse
from harness.diagnose.match import Evidence
from harness.errors import PatchUnfitError, RungFailedError, VerlockError
from harness.evidence.model import Failure
from harness.warm.kept import Generation


def failure_of(generation: Generation) -> tuple[Failure, int]:
    """The failure, and the exit code that a climb would have had."""
    text = generation.error or ""
    if PatchUnfitError.__name__ in text:
        error: VerlockError = PatchUnfitError(text.partition(": ")[2] or text, why=generation.stack)
        return Failure.of(error), error.exit_code
    told = diagnose_lines(
        parse(generation.stack or text, path="import"), catalogue.load(Path()), Evidence(host=host.here())
    )
    place = f"{told.file}:{told.line}" if told.file else _last_place(generation.stack)
    error = RungFailedError(
        text,
        where=place,
        why="importing verl raised it" if generation.stack else None,
        todo=told.fix if told.known else "correct it and save: the next save is tried at once",
    )
    failure = Failure.of(error, signature=told.signature)
    if told.known and told.failure_class != "unknown" and told.scope != "unknown":
        failure = failure.model_copy(update={"failure_class": told.failure_class, "scope": told.scope})
    return failure, error.exit_code


def _last_place(stack: str) -> str | None:
    """Where the stack ends: a ``SystemExit`` is no error that a diagnosis looks for."""
    found = re.findall(r'^  File "([^"]+)", line (\d+)', stack, re.MULTILINE)
    return ":".join(found[-1]) if found else None
