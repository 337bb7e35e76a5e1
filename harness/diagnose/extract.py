"""Which of a log's many errors is the cause: the first true one under the wrappers.

A failing run prints its cause once and its consequences many times: Ray's wrappers, other ranks that lost
a peer, a length filter that swallowed every row. The rules below are in the order in which they decide.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from harness.diagnose.catalogue import Catalogue
from harness.diagnose.lines import Line, streams
from harness.diagnose.tracebacks import NATIVE, Chain, Frame, SeenError, chains

# Looked up, not found, and something else was tried: the second error is the one to read.
_LOOKUPS = frozenset({"KeyError", "AttributeError", "IndexError", "StopIteration", "LookupError"})
# More lines than this are a log, and a log says what happened in a form of its own.
NOTE_LINES = 5
# A line of a printed configuration: 'truncation': 'error',
_SETTING = re.compile(r"^\s*[{\[(]*['\"][\w./ -]+['\"]: ")
_NUMBERS = re.compile(r"\d+")
_PID = re.compile(r"\bpid=(\d+)")
_LAST_WORDS = re.compile(r"(?i)\b(?:error|fatal|killed|aborted|failed|failure|exception|core dumped)\b")


@dataclass(frozen=True, kw_only=True)
class Extract:
    """What was read from a log. ``root`` is the first true error; None where only wrappers are."""

    lines: tuple[Line, ...]
    chains: tuple[Chain, ...]
    root: SeenError | None
    chain: Chain | None
    """The chain that ``root`` belongs to, or the last one with a wrapper."""
    crash: Line | None = None
    """Where no true error is: the line that says that a process was ended."""
    cut: tuple[Frame, ...] = ()
    """Where no true error is: the frames of a traceback that the log does not hold to its end."""
    found: dict[str, bool] = field(default_factory=dict, compare=False, repr=False)
    """Patterns that all lines were already searched for."""

    @cached_property
    def wrappers(self) -> tuple[SeenError, ...]:
        """The errors that hide the root, or are all that there is."""
        return tuple(
            e for chain in self.chains if not chain.ignored for e in chain.errors if e is not self.root
        )

    @cached_property
    def cause(self) -> str:
        """The cause as the program said it, in a few lines at most."""
        if self.root is not None:
            return self.root.message
        if self.crash is not None:
            return self.crash.text.strip()
        if self.cut:
            return f"the log ends inside a traceback{self._at}, before its error"
        if self.wrappers:
            return self.wrappers[-1].message
        return self._last_words.text.strip() if self._last_words else ""

    @property
    def _at(self) -> str:
        frame = self.frame
        return f", at {frame.file}:{frame.line}" if frame is not None else ""

    @cached_property
    def place(self) -> Line | None:
        """The log's line that holds the cause."""
        if self.root is not None:
            return self.root.line
        if self.crash is not None:
            return self.crash
        return self.wrappers[-1].line if self.wrappers else self._last_words

    @cached_property
    def _last_words(self) -> Line | None:
        """Of a log the last line that speaks of an error; of a few words from a person the last of all."""
        noted = self.spoken if len(self.spoken) <= NOTE_LINES else ()
        return next(reversed(self.loud or noted), None)

    @cached_property
    def loud(self) -> tuple[Line, ...]:
        """The lines that speak of an error, whoever wrote them."""
        return tuple(
            line
            for line in self.lines
            if _LAST_WORDS.search(line.text) and not line.quiet and not _SETTING.match(line.text)
        )

    @cached_property
    def spoken(self) -> tuple[Line, ...]:
        """The lines that say anything."""
        return tuple(line for line in self.lines if line.text.strip())

    @cached_property
    def forms(self) -> frozenset[str]:
        """The lines with their workers' names, those that differ in numbers alone once."""
        return frozenset(_NUMBERS.sub("0", f"{line.worker} {line.text}") for line in self.lines)

    @property
    def frame(self) -> Frame | None:
        """Where to look: the innermost frame that is verl's or the user's own; else the innermost."""
        frames = self.root.frames if self.root is not None else self.cut
        own = [frame for frame in frames if _own(frame.file)]
        return next(reversed(own or list(frames)), None)


def _own(file: str) -> bool:
    installed = "site-packages/" in file or "dist-packages/" in file or "/lib/python3" in file
    return ("/verl/" in file.rpartition("-packages")[2] or not installed) and not file.startswith("<")


def extract(lines: Sequence[Line], catalogue: Catalogue) -> Extract:
    """Find the root. Pure: the same lines give the same answer."""
    read = [chain for stream in streams(lines).values() for chain in chains(stream)]
    found = [chain for chain in read if chain.errors]
    order = {(line.path, line.number): position for position, line in enumerate(lines)}
    found.sort(key=lambda chain: order[chain.errors[-1].line.path, chain.errors[-1].line.number])
    serious = [chain for chain in found if not chain.ignored]
    chain, root = _decide(serious, catalogue)
    # An error before the end of a process was survived; one that C++ threw is what ended it.
    begin = 0 if root is None else order[root.line.path, root.line.number] + 1
    crash = None if root is not None and root.type == NATIVE else catalogue.fatal(lines[begin:])
    if crash is not None:
        root = None
    cut = next((chain.cut for chain in reversed(read) if chain.cut), ()) if root is None else ()
    return Extract(lines=tuple(lines), chains=tuple(found), root=root, chain=chain, crash=crash, cut=cut)


def _decide(found: Sequence[Chain], catalogue: Catalogue) -> tuple[Chain | None, SeenError | None]:
    """The driver's last words name the cause. Where they only wrap it, the earliest true error is it."""
    last = _last_words(found)
    if last is not None:
        root = _root(last, catalogue)
        if root is not None:
            return last, root
    named = {pid for error in (last.errors if last else ()) for pid in _PID.findall(error.text)}
    # First those of the worker that the wrapper names.
    others = [chain for chain in found if chain is not last]
    others.sort(key=lambda chain: named.isdisjoint(_PID.findall(chain.errors[-1].line.worker)))
    for chain in others:
        root = _root(chain, catalogue)
        if root is not None:
            return chain, root
    return last, None


def _last_words(found: Sequence[Chain]) -> Chain | None:
    """The driver's last chain; in a log of one worker alone, that worker's; of several, none's."""
    workers = {chain.errors[-1].line.worker for chain in found}
    speaks = "" if "" in workers else workers.pop() if len(workers) == 1 else None
    return next((chain for chain in reversed(found) if chain.errors[-1].line.worker == speaks), None)


def _root(chain: Chain, catalogue: Catalogue) -> SeenError | None:
    """The first cause of one chain that is no wrapper."""
    root: SeenError | None = None
    for error in chain.errors:
        if catalogue.wraps(error.message):
            continue
        if root is None or (error.relation == "during" and root.name in _LOOKUPS):
            root = error
        else:
            break
    return root
