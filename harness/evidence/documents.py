"""The JSON documents that scripts read, as models; their schemas are generated into docs/schemas."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from harness.errors import FailureClass, Scope
from harness.evidence.model import Run
from harness.evidence.parcel import Contents


class _Document(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Told(_Document):
    """One thing that is wrong."""

    what: str
    where: str | None
    """``file:line:key``, as far as each part is known."""
    why: str | None
    todo: str | None


class Error(_Document):
    """Why a command ended with another exit code than 0."""

    failure_class: FailureClass
    type: str
    """The name of the class in harness/errors.py."""
    exit_code: int
    scope: Scope
    run: str | None
    """The folder of the run that failed, where there is one."""
    problems: list[Told]

    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=lambda name: {"failure_class": "class"}.get(name, name)
    )


class ErrorDocument(_Document):
    """What every command prints with ``--json`` in place of its own document when it fails."""

    error: Error


class Climbed(Run):
    """``verlock climb --json`` and ``verlock train --json``: the run record, and where it is."""

    run: str


class Bundled(Contents):
    """``verlock bundle --json``: what is in the archive, and what was taken out of it."""

    bundle: str
    total: dict[str, int]
