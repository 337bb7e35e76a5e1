"""What looks into a fault of each class first, where no signature has named a fix. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from harness.errors import FailureClass
from harness.evidence import words
from harness.evidence.model import Run

_TINY = "tiny"
_WHY: Mapping[FailureClass, str] = {"distributed": "it finds whether the failure goes away without Ray"}


def of(run: Run, failure_class: FailureClass) -> tuple[str, str]:
    """The command, with the run's own options and files, and why it."""
    if failure_class == "config" and run.command[1:2] == [words.CLIMB]:
        command = shlex.join(words.whole(run, "--print-config"))
        return command, "a value is at fault: it shows who set which"
    if failure_class == "data" and (checked := _data(run)) is not None:
        return checked, "it names row and column of what verl cannot read as meant"
    if failure_class == "model-logic":
        command = shlex.join(words.between(run, "forward", "reward"))
        return command, "the mathematics, generation and scoring alone take seconds and need no Ray"
    if failure_class == "resource":
        command = shlex.join(["verlock", "plan", "memory", run.profile, *_planned(run)])
        return command, "it adds up what each phase takes, and names what to change"
    if failure_class in {"backend", "environment"}:
        return f"verlock doctor --profile {run.profile}", "it holds this machine against the profile"
    return f"verlock localise runs/{run.id}", _WHY.get(
        failure_class, "runs that differ in one boundary show which of them it is in"
    )


def _data(run: Run) -> str | None:
    data, model = (str(run.settings.get(name, _TINY)) for name in ("data", "model"))
    if data == _TINY:
        return None
    return shlex.join(["verlock", "data", "check", data, *(["--model", model] if model != _TINY else [])])


def _planned(run: Run) -> list[str]:
    """The user's model and overrides: what decides the memory."""
    model, overrides = run.settings.get("model", _TINY), run.settings.get("overrides")
    own = [] if model == _TINY else ["--model", str(model)]
    return [
        *own,
        *([words.DASHES, *map(str, overrides)] if isinstance(overrides, list) and overrides else []),
    ]
