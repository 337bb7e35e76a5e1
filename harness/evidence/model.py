"""``run.json``: its fields, and the one way to read it.

While a run goes on, the file says ``interrupted``, no exit code and no end. So a process that is
killed, with no one left to write anything, leaves a record that is true as it stands.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final, Literal, Self

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, JsonValue, ValidationError

from harness.errors import FailureClass, RecordError, Scope, VerlockError
from harness.evidence.files import explain

SCHEMA_VERSION: Final = 1
Status = Literal["passed", "failed", "interrupted"]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Failure(_Model):
    """Why a run failed: the class and scope are the design's fixed words."""

    # "class" is a Python keyword; AliasChoices keeps the JSON name and lets callers use ours.
    failure_class: FailureClass = Field(
        validation_alias=AliasChoices("class", "failure_class"), serialization_alias="class"
    )
    signature: str
    cause: str
    fix: str | None = None
    scope: Scope = "general"
    also: FailureClass | None = None

    @classmethod
    def of(cls, error: VerlockError, *, signature: str | None = None) -> Self:
        """Describe one of our own errors; the signature is its type unless a better one is known."""
        causes = [
            problem.lines()[0] + (f" ({problem.why})" if problem.why else "") for problem in error.problems
        ]
        fixes = [problem.todo for problem in error.problems if problem.todo]
        return cls(
            failure_class=error.failure_class,
            signature=signature or error.signature or type(error).__name__,
            cause="\n".join(causes),
            fix="\n".join(dict.fromkeys(fixes)) or None,
            scope=error.scope,
            also=error.also,
        )


class Finding(_Model):
    """What was found in a run that verl itself survived; ``step`` is where it begins, if it is a step's."""

    id: str
    failure_class: FailureClass = Field(
        validation_alias=AliasChoices("class", "failure_class"), serialization_alias="class"
    )
    rung: str
    step: int | None = None
    what: str
    why: str
    todo: str


class Rung(_Model):
    """One rung of the ladder. A rung that has started and not ended reads ``interrupted``."""

    name: str
    status: Status = "interrupted"
    seconds: float | None = None
    verified: str | None = None
    details: dict[str, JsonValue] = {}


class Seen(_Model):
    """A process that belonged to the run, under the last title it was seen with, and its first parent."""

    pid: int
    title: str
    parent: int = 0


class Resources(_Model):
    """What all processes of a run used together. Bytes; times in seconds.

    ``peak_pss_bytes`` is the highest sum seen at one moment. ``measure`` says how memory was counted:
    ``pss`` (Linux: a page shared by n processes counts 1/n in each) or ``uss`` (elsewhere: private
    pages only, so the sum is a lower bound).
    """

    peak_pss_bytes: int = 0
    measure: Literal["pss", "uss"] = "pss"
    peak_by_title: dict[str, int] = {}
    processes: list[Seen] = []
    samples: int = 0
    sampler_cpu_seconds: float = 0.0


class Image(_Model):
    """The image that a run was made in, by digest, as the machine saw it that started the container."""

    manifest: str
    config: str


class Given(_Model):
    """What a run was given from outside, so that it can be run again.

    ``folder`` is where it was started. ``variables`` steer verl, Ray and torch; secrets are left out.
    ``files``: the digest of each file and folder that its options name, by absolute path.
    """

    folder: str
    variables: dict[str, str] = {}
    files: dict[str, str] = {}


class Run(_Model):
    """All of ``run.json``. Times are UTC in ISO 8601, ``seconds`` is wall time so far."""

    schema_version: Literal[1] = SCHEMA_VERSION
    id: str
    profile: str
    command: list[str]
    status: Status = "interrupted"
    exit_code: int | None = None
    started: str
    ended: str | None = None
    seconds: float = 0.0
    pid: int
    rungs: list[Rung] = []
    lock: dict[str, str] = {}
    """The release of verl that was asked for, the lock it came from, and that file's SHA-256."""
    fingerprint: dict[str, JsonValue] = {}
    image: Image | None = None
    versions: dict[str, str] = {}
    settings: dict[str, JsonValue] = {}
    device: str = "cpu"
    rehearsal: bool = False
    """On a CPU under the contract of a profile that may be for a GPU."""
    unverified: list[str] = []
    """What this run says nothing about, because it was not on its profile's own hardware."""
    contract: dict[str, JsonValue] = {}
    """What the ledgers of all processes add up to; empty where nothing was counted."""
    resources: Resources = Resources()
    findings: list[Finding] = []
    """What is not well in a run that may have passed (harness/evidence/health)."""
    failure: Failure | None = None
    ended_by: str | None = None
    """The signal that interrupted it; None also where nothing could be written any more, as on SIGKILL."""
    replays: str | None = None
    """The id of the run that this one repeats: `verlock replay` made it."""
    given: Given | None = None
    """None in a record of an older verlock, and of a job on a cluster."""

    def json_text(self) -> str:
        """Return the file's text: keys in the order above, so that two records can be compared."""
        return self.model_dump_json(by_alias=True, indent=2) + "\n"


def load(run: Path) -> Run:
    """Read a run folder's record (or the ``run.json`` itself).

    Raises :class:`RecordError` when it is not there, not JSON, of another schema version, or does
    not fit the model: then every misfit is reported.
    """
    path = run / "run.json" if run.is_dir() else run
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise explain(error, path, what="read the run record") from error
    except ValueError as error:
        raise RecordError(
            "the run record is not JSON", where=str(path), why=str(error), todo="choose another run"
        ) from error
    version = document.get("schema_version") if isinstance(document, dict) else None
    if version != SCHEMA_VERSION:
        raise RecordError(
            f"the run record has schema version {version!r}, this verlock reads {SCHEMA_VERSION}",
            where=f"{path}:schema_version",
            todo="read it with the verlock that wrote it",
        )
    try:
        return Run.model_validate(document)
    except ValidationError as error:
        misfits = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        raise RecordError("the run record does not fit its schema", where=str(path), why=misfits) from error
