"""What people and scripts see: rich on a terminal, plain lines elsewhere, or one JSON document.

With ``--json`` standard output carries exactly one JSON document; all else goes to standard error.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TextIO

from rich.console import Console
from rich.markup import escape

from harness.errors import VerlockError


class _Terminal(Console):
    """A console that falls silent when its reader has gone, as with ``| head -1``: the run goes on."""

    def on_broken_pipe(self) -> None:
        """Rich would end the process here, in the middle of a rung."""
        self.quiet = True
        # What is still buffered must go somewhere, or closing the stream raises again.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.file.fileno())
        os.close(nowhere)


class Output:
    """One process's way of speaking, chosen once on the command line."""

    def __init__(self, *, as_json: bool = False, file: TextIO | None = None) -> None:
        """With ``as_json`` everything for people goes to standard error; ``file`` overrides where it goes."""
        self.as_json = as_json
        # emoji: "file.jsonl:question:" is a place, not a picture.
        # soft_wrap: a log line that is cut at 80 columns on a pipe cannot be searched for.
        self.console = _Terminal(stderr=as_json, file=file, highlight=False, soft_wrap=True, emoji=False)

    def line(self, text: str, *, style: str | None = None) -> None:
        """Print one line, flushed, so that a pipe sees progress as it happens."""
        self.console.print(escape(text), style=style)
        if self.console.quiet:
            return
        try:
            self.console.file.flush()
        except BrokenPipeError:
            self.console.on_broken_pipe()

    def busy(self, text: str) -> AbstractContextManager[object]:
        """A spinner on a terminal while something long runs; elsewhere the one plain line is enough."""
        if self.console.is_terminal:
            return self.console.status(escape(text))
        self.line(text)
        return nullcontext()

    def result(self, document: dict[str, Any], human: Callable[[], None] | None = None) -> None:
        """End a command: its JSON document, or what ``human`` prints."""
        if self.as_json:
            sys.stdout.write(json.dumps(document, indent=2, sort_keys=True) + "\n")
            sys.stdout.flush()
        elif human is not None:
            human()

    def json_line(self, document: dict[str, Any]) -> None:
        """One document of several, for a command that goes on: each in a line of its own."""
        sys.stdout.write(json.dumps(document, sort_keys=True) + "\n")
        sys.stdout.flush()

    def error(self, error: VerlockError) -> None:
        """Report an error: problems one below the other, or the same as JSON."""
        if self.as_json:
            document = {
                "error": {
                    "class": error.failure_class,
                    "type": type(error).__name__,
                    "exit_code": error.exit_code,
                    "scope": error.scope,
                    "run": error.run,
                    "problems": [vars(problem) for problem in error.problems],
                }
            }
            sys.stdout.write(json.dumps(document, indent=2, sort_keys=True) + "\n")
        else:
            err = Console(stderr=True, highlight=False, soft_wrap=True, emoji=False)
            for problem in error.problems:
                first, *rest = problem.lines()
                err.print(f"[bold red]error[/]: {escape(first)}")
                for text in rest:
                    err.print(escape(text))
            if error.run is not None:  # a run's failure; of a mistake in the words the error itself is enough
                also = f" (also {error.also})" if error.also else ""
                err.print(escape(f"  class: {error.failure_class}{also}; {error.scope}"))


class AlreadyToldExit(SystemExit):
    """An end of which everything has been said: nothing is printed for it."""
