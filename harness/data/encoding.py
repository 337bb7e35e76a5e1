"""Which lines of a text file are not UTF-8: a decoder only says where in its buffer it stopped."""

from __future__ import annotations

from pathlib import Path

from harness.data.refused import Refused
from harness.errors import Problem

_WIDE = {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}


def tell(path: Path, error: UnicodeDecodeError, bad: Refused) -> None:
    """Note each line of ``path`` that is not UTF-8, by a second look at its bytes; ``error`` asked for it."""
    lines = False
    with path.open("rb") as file:
        wide = _WIDE.get(file.read(2))
        file.seek(0)
        for number, line in enumerate([] if wide else file, 1):
            try:
                line.decode()
            except UnicodeDecodeError as found:
                lines = True
                bad.add(_line(path, number, found), place=f"line {number}", kind=("", "encoding"), at=number)
    whole = Problem(
        what=f"the file is {wide or 'not UTF-8'}",
        where=str(path),
        why=str(error),
        todo=f"convert it, for example: iconv -f {wide or 'LATIN1'} -t UTF-8",
    )
    if not lines:
        bad.add(whole, place=str(path), kind=("", "encoding"), at=0)


def _line(path: Path, number: int, error: UnicodeDecodeError) -> Problem:
    return Problem(
        what=f"this line is not UTF-8: byte 0x{error.object[error.start]:02x} at place {error.start + 1}",
        where=f"{path}:{number}",
        why="a file in another encoding, such as LATIN1 of a spreadsheet, or bytes that are no text",
        todo="convert it, for example: iconv -f LATIN1 -t UTF-8",
    )
