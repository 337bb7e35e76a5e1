"""The answer: what broke, of which class, local or general, where, what to do, and how sure that is."""

from __future__ import annotations

import re
from typing import Literal, Self

from pydantic import AliasChoices, BaseModel, ConfigDict, Field

from harness.diagnose.extract import Extract
from harness.diagnose.match import Match, Sure
from harness.diagnose.signature import UNKNOWN, Kind
from harness.errors import FailureClass, Scope
from harness.evidence.model import Failure

# A message may carry a whole configuration; the log has the rest.
_CAUSE_LINES, _CAUSE_LENGTH = 6, 600
_PLACE = re.compile(r"(?P<file>\S+):(?P<line>\d+): ")


class Raised(BaseModel):
    """The cause in the program's own words, and where they stand in the log."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    text: str
    log: str | None = None
    log_line: int | None = None
    worker: str = ""


class Diagnosis(BaseModel):
    """The document of ``verlock diagnose --json``. ``fix`` is null where no signature matches.

    The class may be told even then, by ``judged_by``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal[1] = 1
    signature: str
    failure_class: FailureClass | Literal["unknown"] = Field(
        validation_alias=AliasChoices("class", "failure_class"), serialization_alias="class"
    )
    also: FailureClass | None = None
    judged_by: str | None = Field(
        default=None,
        description="What told the class where no signature matches: it is no cause.",
    )
    scope: Scope | Literal["unknown"]
    cause: str
    fix: str | None = None
    sure: Sure | Literal["unknown"]
    rivals: list[str] = Field(default=[], description="Signatures that fit as well as this one.")
    raised: Raised
    file: str | None = Field(default=None, description="Innermost source file of verl's or the user's own.")
    line: int | None = None
    hidden_by: list[str] = Field(default=[], description="Errors in the log that only wrap the cause.")
    evidence: list[str] = []

    @property
    def known(self) -> bool:
        """Whether a signature matches."""
        return self.signature != UNKNOWN

    @classmethod
    def of(cls, extract: Extract, match: Match | None, kind: Kind | None = None) -> Self:
        """Put together what was extracted and what matched; ``kind`` tells the class where nothing did."""
        frame = extract.frame
        place = extract.place if match is None or extract.root is not None else match.place
        spoken = extract.cause if match is None or extract.root is not None else match.place.text.strip()
        raised = Raised(
            text=_short(spoken),
            log=place.path if place else None,
            log_line=place.number if place else None,
            worker=place.worker if place else "",
        )
        common = {
            "raised": raised,
            "file": frame.file if frame else None,
            "line": frame.line if frame else None,
            "hidden_by": list(dict.fromkeys(_short(e.message, lines=1) for e in extract.wrappers))[:5],
        }
        if match is None:
            said = _short(spoken) or "the log holds no error"
            return cls.model_validate(
                {
                    "signature": UNKNOWN,
                    "class": kind.failure_class if kind else UNKNOWN,
                    "also": kind.also if kind else None,
                    "judged_by": kind.because if kind else None,
                    "scope": (kind and kind.scope) or UNKNOWN,
                    "cause": said,
                    "sure": UNKNOWN,
                    **common,
                }
            )
        signature = match.signature
        return cls.model_validate(
            {
                "signature": signature.id,
                "class": signature.failure_class,
                "also": signature.also,
                "scope": signature.scope,
                "cause": match.cause,
                "fix": match.fix,
                "sure": match.sure,
                "rivals": list(match.rivals),
                "evidence": list(signature.evidence),
                **common,
            }
        )

    @classmethod
    def recorded(cls, failure: Failure, log: Diagnosis, record: str) -> Self:
        """What the run said of itself as it ended; ``log`` is what its output alone would tell."""
        first = failure.cause.split("\n")[0]
        place = _PLACE.match(first)
        unknown = failure.signature == UNKNOWN
        return cls.model_validate(
            {
                "signature": failure.signature,
                "class": failure.failure_class,
                "also": failure.also,
                "scope": failure.scope,
                "cause": _short(failure.cause),
                "fix": None if unknown else failure.fix,
                "sure": UNKNOWN if unknown else "certain",
                "raised": Raised(text=_short(first), log=record),
                "file": place["file"] if place else None,
                "line": int(place["line"]) if place else None,
                "hidden_by": log.hidden_by,
            }
        )


def _short(text: str, *, lines: int = _CAUSE_LINES) -> str:
    kept = [line.rstrip() for line in text.strip().split("\n")][:lines]
    whole = "\n".join(kept)
    return whole if len(whole) <= _CAUSE_LENGTH else whole[:_CAUSE_LENGTH] + " ..."
