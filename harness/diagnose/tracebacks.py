"""The errors in one stream of lines: type, message, place, and which came of which.

Python prints a chain with its first cause on top, Ray prints the wrapper on top and the cause below it.
Both are read as one chain in the order in which the errors *happened*.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from harness.diagnose.lines import Line

Relation = Literal["first", "from", "during"]

_HEADER = re.compile(r"(?:^|.*\s|\| )Traceback \(most recent call last\):?\s*$|^\s*Original Traceback")
_RAY_BODY = re.compile(r"^(?:.*\s)?ray::[\w:.\-<>\[\]]+(?:\.\w+)?\(\) ?\(")
_FRAME = re.compile(r'^\s*(?:[|+]\s+)?File "(?P<file>[^"]+)", line (?P<line>\d+)(?:, in (?P<function>.+))?')
_ENDS = r"(?:Error|Exception|Interrupt|Exit|Failure|Failed|Timeout|Died|Crashed)"
# triton.runtime.errors.OutOfResources: the module says what the name does not.
_ERRORS_MODULE = r"(?:[a-z_]\w*\.)*(?:errors?|exc|exceptions)\.[A-Z]\w*"
_REST = r"(?P<of>\([\w.]+\))?(?::\s*(?P<text>.*))?$"
_NAMED = re.compile(
    rf"^(?:E {{3}}|[|+]\s+)?(?P<type>(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*{_ENDS}|{_ERRORS_MODULE}){_REST}"
)
# In a traceback the line after the frames is an error whatever its name (OutOfResources, StopIteration).
_ANY = re.compile(rf"^(?:[|+]\s+)?(?P<type>(?:[A-Za-z_]\w*\.)+[A-Za-z_]\w*|[A-Z]\w+){_REST}")
# Somewhere in a log line: "... failed with error: CUDA error", repr'd inside another message.
_INSIDE = re.compile(r"(?P<type>\b(?:[a-z_]\w*\.)*[A-Z]\w*(?:Error|Exception))(?:: | ?\(['\"]?)(?P<text>.+)")
# C++'s last words: the error that nobody caught and that aborts the process.
_WHAT = re.compile(r"^\s*what\(\): +(?P<text>\S.*)$")
NATIVE = "C++ exception"
_FROM = "The above exception was the direct cause of the following exception"
_DURING = "During handling of the above exception, another exception occurred"
_IGNORED = re.compile(
    r"Exception ignored in|Error in atexit|Error in sys\.excepthook|never retrieved|--- Logging error"
)
_STRUCTURE = re.compile(
    r"^\s*$|^\s*(?:INFO|WARNING|ERROR|DEBUG)[ :]|^Error executing job|^Set the environment variable"
)
_MESSAGE_LINES = 8


@dataclass(frozen=True, kw_only=True)
class Frame:
    """One line of a stack: where, and the source text that Python printed below it."""

    file: str
    line: int
    function: str = ""
    source: str = ""


@dataclass(frozen=True, kw_only=True)
class SeenError:
    """One error as it was printed. ``of`` is the type in ``RayTaskError(ValueError)``."""

    type: str
    text: str
    line: Line
    frames: tuple[Frame, ...] = ()
    relation: Relation = "first"
    of: str = ""

    @property
    def name(self) -> str:
        """The type without its modules."""
        return self.type.rpartition(".")[2]

    @property
    def message(self) -> str:
        """``Type: text`` as Python prints it; a bare assertion is known only by its source."""
        source = self.frames[-1].source if self.frames else ""
        if not self.text and source:
            return f"{self.type}: {source}"
        return f"{self.type}: {self.text}" if self.text else self.type


@dataclass(kw_only=True)
class Chain:
    """Errors that came of each other, the first cause first; Ray's wrappers keep their printed place."""

    errors: list[SeenError] = field(default_factory=list)
    ignored: bool = False
    """Python printed it and went on: an error in a destructor, a logger, or at exit."""
    cut: tuple[Frame, ...] = ()
    """The frames of a traceback whose error the log has no more: it was cut."""


@dataclass(kw_only=True)
class _Reader:
    """Where the reading of one stream stands."""

    chains: list[Chain] = field(default_factory=list)
    frames: list[Frame] = field(default_factory=list)
    inside: bool = False
    relation: Relation | None = None
    ignored: bool = False

    def open(self, *, nested: bool) -> None:
        """A traceback begins: of the same chain after a connecting sentence, or within a wrapper."""
        if self.relation is None and not nested:
            self.chains.append(Chain(ignored=self.ignored))
            self.ignored = False
        elif not self.chains:
            self.chains.append(Chain())
        self.inside, self.frames = True, []

    def close(self, line: Line, found: re.Match[str], text: str) -> None:
        """The error at a traceback's end, or one that stands alone."""
        if not self.chains or (not self.inside and self.relation is None):
            self.chains.append(Chain(ignored=self.ignored or line.quiet))
            self.ignored = False
        self.chains[-1].errors.append(
            SeenError(
                type=found["type"],
                text=text,
                line=line,
                frames=tuple(self.frames),
                relation=self.relation or "first",
                of=(found["of"] or "").strip("()"),
            )
        )
        self.inside, self.relation, self.frames = False, None, []


def chains(stream: Sequence[Line]) -> list[Chain]:
    """All chains of one worker's lines, in the order in which they were printed."""
    reader = _Reader()
    number = 0
    while number < len(stream):
        number += _step(reader, stream, number)
    if reader.inside and reader.frames:
        reader.chains[-1].cut = tuple(reader.frames)
    return [chain for chain in reader.chains if chain.errors or chain.cut]


def _step(reader: _Reader, stream: Sequence[Line], number: int) -> int:
    """Read one line, or an error with the rest of its message; returns how many lines that were."""
    line = stream[number]
    text = line.text
    frame = _FRAME.match(text)
    if frame is not None:
        following = stream[number + 1].text if number + 1 < len(stream) else ""
        if not reader.inside:  # the head of the traceback was cut off
            reader.open(
                nested=bool(reader.chains and reader.chains[-1].errors) and reader.relation is not None
            )
        reader.frames.append(_frame(frame, following))
    elif _HEADER.match(text):
        reader.open(nested=False)
    elif _RAY_BODY.match(text) and _NAMED.match(text) is None:
        reader.open(nested=reader.relation is None and _after_wrapper(reader))
    elif _FROM in text:
        reader.relation = "from"
    elif _DURING in text:
        reader.relation = "during"
    elif _IGNORED.search(text):
        reader.ignored = True
    elif (what := _WHAT.match(text)) is not None:
        error = SeenError(type=NATIVE, text=what["text"], line=line)
        reader.chains.append(Chain(errors=[error]))
    else:
        return _maybe_error(reader, stream, number)
    return 1


def _after_wrapper(reader: _Reader) -> bool:
    return bool(reader.chains and reader.chains[-1].errors)


def _maybe_error(reader: _Reader, stream: Sequence[Line], number: int) -> int:
    line = stream[number]
    below = reader.inside and bool(reader.frames)
    pattern = _ANY if below and not line.text.startswith(" ") else _NAMED
    # A report's author may have indented the error like the source above it.
    found = pattern.match(line.text.lstrip() if below else line.text)
    if found is None or (pattern is _NAMED and found["text"] is None and not reader.inside):
        return 1
    rest = list(_rest_of_message(stream, number + 1))
    text = "\n".join([found["text"] or "", *rest]).strip("\n")
    reader.close(line, found, text)
    if _RAY_BODY.match(text):  # RayTaskError(X): ray::f() (pid=1): the worker's own traceback follows
        reader.inside = True
    return 1 + len(rest)


def _rest_of_message(stream: Sequence[Line], begin: int) -> Iterator[str]:
    """The lines that still belong to a message: up to the next thing with a form of its own."""
    for line in stream[begin : begin + _MESSAGE_LINES]:
        text = line.text
        if (
            _STRUCTURE.match(text)
            or _HEADER.match(text)
            or _FRAME.match(text)
            or _NAMED.match(text)
            or _RAY_BODY.match(text)
            or _IGNORED.search(text)
            or _FROM in text
            or _DURING in text
        ):
            return
        # A message that shows source, as Triton's and a SyntaxError's, marks the place below it.
        yield "" if set(text.strip()) <= set("^~ ") else text


def _frame(found: re.Match[str], following: str) -> Frame:
    source = following.strip() if following.startswith("    ") and not _FRAME.match(following) else ""
    return Frame(file=found["file"], line=int(found["line"]), function=found["function"] or "", source=source)


def quoted(text: str) -> list[tuple[str, str]]:
    """Errors that a text quotes, such as Hydra's ``AssertionError("...")``, in the order of the text."""
    return [(found["type"], found["text"]) for found in _INSIDE.finditer(text)]
