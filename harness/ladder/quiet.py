"""Keeps libraries off the terminal: what they print goes to the run's log, whoever prints it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from harness.evidence.files import explain


@contextmanager
def captured(log: Path, stream: TextIO) -> Iterator[TextIO]:
    """Send descriptors 1 and 2 to ``log``; yields a stream that still reaches where ``stream`` went.

    C++ code (torch, gloo) writes to the descriptors directly, so replacing ``sys.stdout`` is not enough.
    """
    try:
        sink = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise explain(error, log, what="write the output log") from error
    sys.stdout.flush()
    sys.stderr.flush()
    saved = {number: os.dup(number) for number in (1, 2)}
    terminal = os.fdopen(os.dup(stream.fileno()), "w", buffering=1, encoding="utf-8")
    try:
        for number in saved:
            os.dup2(sink, number)
        yield terminal
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, kept in saved.items():
            os.dup2(kept, number)
            os.close(kept)
        os.close(sink)
        terminal.close()
