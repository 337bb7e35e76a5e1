"""The JSON documents that scripts read, as models; their schemas are generated into docs/schemas."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from harness.errors import FailureClass, Scope
from harness.evidence.model import Run, Status
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


class Reported(_Document):
    """``verlock report --json``: the page that was made."""

    run: str
    status: Status
    report: str


class Setting(_Document):
    """One leaf of the configuration that verl gets."""

    key: str
    value: Any
    default: Any
    """What verl has without any override."""
    origin: Literal["verl default", "profile", "rung", "release", "user", "follows"]
    """``follows``: it refers to a key that was set. ``release``: an older verl needs it."""


class PrintedConfig(_Document):
    """``verlock climb --print-config --json``."""

    config: list[Setting]


class Found(_Document):
    """One thing that a check found. ``id`` names the kind and never changes."""

    id: str
    key: str
    """A Hydra key, or file, row and column."""
    what: str
    why: str | None
    todo: str | None
    level: Literal["fault", "warning", "note"]


class ChangedKey(_Document):
    """One key of the user's that is another in the small run."""

    key: str
    old: Any
    new: Any
    why: str


class Preflighted(_Document):
    """``verlock preflight --json``."""

    module: str
    words: list[str]
    """The overrides, as the command or the script gave them."""
    kept_from_happening: list[str]
    """What the script would have called before it."""
    findings: list[Found]
    changes: list[ChangedKey] = []
    not_verified: list[str]
    run: dict[str, Any] | None
    """The record of the small run, with its ``folder``; None: nothing was started."""
