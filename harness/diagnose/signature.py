"""What a catalogue file holds: signatures of failures, wrappers that hide them, and how patterns are read."""

from __future__ import annotations

import re
from functools import cache
from typing import Annotated, Literal

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from pydantic import AfterValidator, AliasChoices, BaseModel, ConfigDict, Field, StringConstraints

from harness.errors import FailureClass, Scope

UNKNOWN = "unknown"
_BETWEEN = re.compile(r"(?<=[\u3000-\u9fff])(?=[A-Za-z0-9])|(?<=[A-Za-z0-9])(?=[\u3000-\u9fff])")


def _compiles(text: str) -> str:
    try:
        compiled(text)
    except re.error as error:
        raise ValueError(f"not a regular expression: {error}") from None
    if compiled(text).search(""):
        raise ValueError("matches an empty text, and so every failure")
    return text


def _specifier(text: str) -> str:
    try:
        SpecifierSet(text)
    except InvalidSpecifier as error:
        raise ValueError(str(error)) from None
    return text


def _known_id(text: str) -> str:
    if text == UNKNOWN:
        raise ValueError("is what a failure is called that no signature matches")
    return text


Pattern = Annotated[str, StringConstraints(min_length=4), AfterValidator(_compiles)]
Sentence = Annotated[str, StringConstraints(min_length=8, strip_whitespace=True)]
Id = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]{2,48}$"), AfterValidator(_known_id)]


@cache
def compiled(pattern: str) -> re.Pattern[str]:
    """The pattern for a text without line breaks: a blank in it also matches where a line was broken.

    So ``is not set`` is found in ``is`` / ``not set``, and in ``is no`` / ``t set``.
    """
    return re.compile(re.sub(r"(?<!\\) ", r"\\s*", pattern))


def joined(text: str) -> str:
    """The text as :func:`compiled` patterns expect it. Chinese has no blanks around English words."""
    text = text.replace("\n", "")
    return text if text.isascii() else _BETWEEN.sub(" ", text)


class Model(BaseModel):
    """Frozen, and strict about keys: a typo in a catalogue is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Given(Model):
    """What must hold beside the text. The same words have different causes on different hosts."""

    gpus: Literal["none", "some"] | None = Field(default=None, description="On the failing host.")
    system: Literal["linux", "darwin"] | None = Field(default=None, description="Its operating system.")
    machine: Literal["x86_64", "arm64"] | None = Field(default=None, description="Its processor.")
    cpus_below: int | None = Field(default=None, description="It has fewer logical CPUs than this.")
    log: Pattern | None = Field(default=None, description="Found anywhere in the log.")
    log_without: Pattern | None = Field(default=None, description="Found nowhere in the log.")
    note: bool | None = Field(default=None, description="The text is a person's few lines, no log.")
    run: Pattern | None = Field(
        default=None, description="As log, or in the name of a Ray worker: of what program the log is."
    )
    frames: Pattern | None = Field(
        default=None, description="Found in the stack: `file: function: source`, one frame a line."
    )
    raised: Pattern | None = Field(
        default=None,
        description="As frames, in the last one: where the error was raised, verl's code or what it calls.",
    )
    known: bool = Field(
        default=False,
        description="All of this must be known to hold, not merely be possible: for broad patterns.",
    )
    divides: tuple[str, str] | None = Field(
        default=None, description="Named groups: the first, not zero, divides the second."
    )


class Way(Model):
    """One way in which a kind of failure shows: words, and what must hold beside them."""

    patterns: tuple[Pattern, ...] = Field(min_length=1)
    given: Given = Given()


class Signature(Model):
    """One kind of failure: how it is recognised, what it is, and what to do."""

    id: Id
    failure_class: FailureClass = Field(
        validation_alias=AliasChoices("class", "failure_class"), serialization_alias="class", alias="class"
    )
    also: FailureClass | None = Field(default=None, description="A second class that can be defended.")
    scope: Scope = Field(description="local-only: goes away on the target hardware.")
    patterns: tuple[Pattern, ...] = Field(
        min_length=1,
        description="Regular expressions over `Type: message`. Named groups fill in cause and fix.",
    )
    anywhere: bool = Field(
        default=False,
        description="Also looked for in every line of a log without a true error.",
    )
    given: Given = Given()
    or_else: tuple[Way, ...] = Field(
        (), description="Further patterns, each list with what it needs of its own, `given` apart."
    )
    verl: Annotated[str, AfterValidator(_specifier)] = Field(
        "", description="Versions of verl, as in PEP 440; empty: all."
    )
    cause: Sentence
    fix: Sentence
    evidence: tuple[Sentence, ...] = Field(
        min_length=1, description="Where this was seen: issues, source, runs."
    )

    @property
    def ways(self) -> tuple[Way, ...]:
        """All ways to know it, in the order in which they are tried."""
        return (Way(patterns=self.patterns, given=self.given), *self.or_else)


class Kind(Model):
    """What class an error is of that no signature knows. It names no cause and no fix."""

    failure_class: FailureClass = Field(
        validation_alias=AliasChoices("class", "failure_class"), serialization_alias="class", alias="class"
    )
    also: FailureClass | None = Field(default=None, description="A second class that can be defended.")
    scope: Scope | None = Field(default=None, description="Where the class alone makes it plain.")
    patterns: tuple[Pattern, ...] = Field(min_length=1, description="As a signature's.")
    given: Given = Given()
    because: Sentence = Field(description="What tells the class.")


class Wrapper(Model):
    """An error that hides another: never the cause where a true error is in the log."""

    patterns: tuple[Pattern, ...] = Field(min_length=1)
    hides: Sentence


class CatalogueFile(Model):
    """One YAML file: ours, or ``verlock-signatures.yaml`` beside a user's project."""

    signatures: tuple[Signature, ...] = ()
    kinds: tuple[Kind, ...] = Field((), description="Classes of errors that no signature knows.")
    wrappers: tuple[Wrapper, ...] = ()
    fatal: tuple[Pattern, ...] = Field(
        (), description="Lines that end a run, whatever traceback came before."
    )
