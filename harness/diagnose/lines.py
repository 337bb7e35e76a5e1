"""A log's bytes as clean lines, each with the worker that wrote it.

Logs reach us after Ray, a terminal, a scheduler and a copy have each added something: colours, a prefix
for each worker, a label for each task, a line break at the terminal's edge. None of it is the program's.
"""

from __future__ import annotations

import codecs
import gzip
import html
import re
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harness.errors import DiagnoseError

_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
# Colours whose escape byte a copy through a web page or a scheduler has eaten: "[36m(TaskRunner".
_BARE_ESCAPE = re.compile(r"\[(?:0|1|2|22|3[0-9]|39|9[0-7])(?:;[0-9]{1,3})*m")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
# Ray's: (TaskRunner pid=1), (pid=1, ip=10.0.0.1), (WorkerDict pid=1, ip=...), (raylet), (autoscaler +1m2s).
_RAY = re.compile(
    r"^\s?\((?P<worker>(?:[\w:.\-]+(?:\([\w.\-]+\))? (?:\w+=\w+ |[A-Z]+\d+ )*)?(?:pid|ip)=[^)\n]{1,60}"
    r"|raylet(?:, ip=[\d.]+)?|gcs_server|autoscaler [+\w]+|scheduler [+\w]+)\) ?"
)
# Labels that carry the task's number (srun -l, torchrun, docker compose, kubectl --prefix), then clocks.
_LABELS = (
    re.compile(r"^(?P<worker>\d{1,5}): (?=\S|\s{2})"),
    re.compile(r"^\[(?P<worker>(?:rank|default|pod/)[\w\-./]*\d*)\]:? ?"),
    re.compile(r"^(?P<worker>[a-z][\w\-]{1,40}-\d+) +\| "),
    re.compile(r"^(?:> |│ |E {3})"),  # quoted in a report, framed by rich, marked by pytest
)
_STAMP = r"\[?\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?\]?[,:]? ?"
_CLOCKS = (
    re.compile(rf"^{_STAMP}(?:stdout|stderr) [FP] "),
    re.compile(rf"^{_STAMP}(?:\t| )*(?:[-|:] )?(?P<level>DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL)\b"),
    re.compile(rf"^{_STAMP}"),
    # vLLM: ERROR 08-01 12:00:00 [core.py:700] text.
    re.compile(
        r"^(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d (?:\[?[\w./]+:\d+\]? ?)?"
    ),
)
# verl warns so of each engine that is not installed, in every process, with the error's text: nothing failed.
_WARNS = re.compile(r"\.py:\d+: \w*Warning: |^Warning: ")
_ENTITY = re.compile(r"&(?:#x?[0-9a-fA-F]{1,6}|lt|gt|amp|quot|apos);")
_REPEATED = re.compile(r" ?\[repeated \d+x across (?:all nodes|cluster)\].*$")
_QUIET = frozenset({"DEBUG", "INFO", "WARNING", "WARN"})
# What begins a line of its own, however long the line before: a log cut at a column is not a wrapped one.
_BEGINS = re.compile(r"  File \"|Traceback \(|(?:[A-Za-z_]\w*\.)*[A-Z]\w+(?:Error|Exception)\b[:(]")
# Fewer lines of equal length than this are chance, and no terminal is narrower.
_WRAP_LINES, _WRAP_WIDTH = 4, 40
# A printed configuration fills many rows; more are lines that happen to be equally long.
_WRAP_ROWS = 200


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """One line as its program wrote it. ``number`` counts from 1; ``worker`` is "" for the driver."""

    path: str
    number: int
    worker: str
    text: str
    quiet: bool = False
    """Logged at a level that ends no run."""


def read(path: Path) -> list[Line]:
    """The file's lines, of a gzip file those in it. Bytes that are not text are replaced.

    Raises:
        DiagnoseError: a gzip file that is damaged.
        OSError: it cannot be read.
    """
    data = path.read_bytes()
    if data.startswith(b"\x1f\x8b"):
        with gzip.open(path) as packed:
            data = _unpacked(packed, path)
    encoding = "utf-16" if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8"
    text = data.decode(encoding, errors="replace")
    return parse(text, path=str(path))


def _unpacked(packed: gzip.GzipFile, path: Path) -> bytes:
    try:
        return packed.read()
    except (EOFError, zlib.error) as error:
        raise DiagnoseError("the gzip file is damaged", where=str(path), why=str(error)) from error


def parse(text: str, *, path: str = "log") -> list[Line]:
    """The text's lines, cleaned, in order. Of a line redrawn with carriage returns the last state counts."""
    raw = [_plain(line) for line in text.replace("\r\n", "\n").split("\n")]
    labelled = [_line(path, number, line) for number, line in enumerate(raw, start=1)]
    return list(_unwrap(labelled, [len(line) for line in raw]))


def _plain(line: str) -> str:
    if _ENTITY.search(line):  # copied from a page's source
        line = html.unescape(line)
    drawn = line.rstrip("\r").rpartition("\r")[2]
    return _CONTROL.sub("", _BARE_ESCAPE.sub("", _ESCAPE.sub("", drawn)).replace("\t", "    ")).rstrip()


def _line(path: str, number: int, text: str) -> Line:
    worker, level = "", ""
    for _round in range(3):  # a clock before Ray's prefix, another after it, a label before both
        before = text
        for pattern in (_RAY, *_LABELS, *_CLOCKS):
            found = pattern.match(text)
            if found is None:
                continue
            groups = found.groupdict()
            worker = " ".join(filter(None, (worker, groups.get("worker"))))
            level = groups.get("level") or level
            text = text[found.end() :]
        if text == before:
            break
    return Line(
        path=path,
        number=number,
        worker=worker,
        text=_REPEATED.sub("", text),
        quiet=level in _QUIET or bool(_WARNS.search(text)),
    )


def _unwrap(lines: Sequence[Line], lengths: Sequence[int]) -> Iterator[Line]:
    """Put together what a terminal broke at its edge: many lines of exactly the greatest length."""
    edge = _edge(lengths)
    held: Line | None = None
    rows = 0
    for line, length in zip(lines, lengths, strict=True):
        if held is not None and rows < _WRAP_ROWS and not line.worker and not _BEGINS.match(line.text):
            held, rows = replace(held, text=held.text + line.text), rows + 1
        else:
            if held is not None:
                yield held
            held, rows = line, 1
        if length != edge:
            yield held
            held = None
    if held is not None:
        yield held


def _edge(lengths: Sequence[int]) -> int | None:
    longest = max(lengths, default=0)
    return longest if longest >= _WRAP_WIDTH and Counter(lengths)[longest] >= _WRAP_LINES else None


def streams(lines: Sequence[Line]) -> dict[tuple[str, str], list[Line]]:
    """The lines of each file and worker by themselves: workers write into each other's tracebacks."""
    found: dict[tuple[str, str], list[Line]] = {}
    for line in lines:
        found.setdefault((line.path, line.worker), []).append(line)
    return found
