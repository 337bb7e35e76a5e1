"""The text of a lock: read it, judge it, put a header on it. Pure."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from harness.errors import LockError, Problem

SEAL = "# seal: sha256:"
_START = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)==(\S+)")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})(?=\s|$)")
_ADDRESS = re.compile(
    r"://|^\s*(?:-i|-f|-e|--index-url|--extra-index-url|--find-links)\b|(?:^|[\s(])(?:~|\.{1,2})?/\w",
    re.MULTILINE,
)


@dataclass(frozen=True, kw_only=True)
class Pin:
    """One locked distribution."""

    name: str
    version: str
    hashes: tuple[str, ...]
    line: int
    """Where it starts in the file."""
    text: str
    """Its lines, as they stand."""

    @property
    def public_version(self) -> str:
        """Without the local part: ``2.13.0`` and ``2.13.0+cpu`` are the same release built twice."""
        return self.version.partition("+")[0]


def parse(text: str, *, file: str) -> dict[str, Pin]:
    """All pins by name.

    Raises:
        LockError: with every line that is no pin, and every pin without a hash.
    """
    pins: dict[str, Pin] = {}
    problems: list[Problem] = []
    for number, block in _blocks(text):
        match = _START.match(block)
        if match is None:
            problems.append(
                Problem(what=f"not a locked package: {block.splitlines()[0]!r:.80}", where=f"{file}:{number}")
            )
            continue
        name, version = match[1].lower(), match[2]
        hashes = tuple(_HASH.findall(block))
        if len(hashes) != block.count("--hash") or not hashes:
            problems.append(
                Problem(
                    what=f"{name}: a hash is missing or is not 64 hexadecimal digits",
                    where=f"{file}:{number}:{name}",
                )
            )
        if name in pins:
            problems.append(Problem(what=f"{name} is locked twice", where=f"{file}:{number}:{name}"))
        pins[name] = Pin(name=name, version=version, hashes=hashes, line=number, text=block)
    if problems:
        raise LockError(*problems)
    return pins


def _blocks(text: str) -> list[tuple[int, str]]:
    """Each requirement with the indented lines that belong to it, and its line number."""
    blocks: list[tuple[int, list[str]]] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if line.startswith("#") or not line.strip():
            continue
        if line[0].isspace() and blocks:
            blocks[-1][1].append(line)
        else:
            blocks.append((number, [line]))
    return [(number, "\n".join(lines) + "\n") for number, lines in blocks]


def leaks(body: str, *, file: str) -> list[Problem]:
    """Addresses of indexes and paths of this machine: they have no place in a file that others use."""
    return [
        Problem(what=f"an address or a local path: {line.strip()!r:.80}", where=f"{file}:{number}")
        for number, line in enumerate(body.splitlines(), start=1)
        if _ADDRESS.search(line)
    ]


def sealed(body: str, *, head: list[str]) -> str:
    """The file: comment lines, the seal over the rest, the rest."""
    return (
        "".join(f"# {line}\n" for line in head)
        + SEAL
        + hashlib.sha256(body.encode()).hexdigest()
        + "\n"
        + body
    )


def check_seal(text: str, *, file: str) -> None:
    """Refuse a lock that was edited by hand.

    uv checks the hashes of the wheels that it installs here; an alteration that concerns another machine's
    wheel would go unnoticed until somebody else trips over it.

    Raises:
        LockError: the content is not what the header seals.
    """
    head, found, rest = text.partition(SEAL)
    seal, _, body = rest.partition("\n")
    if not found or head.count("\n") > 8 or seal != hashlib.sha256(body.encode()).hexdigest():
        raise LockError(
            "the lock was altered after it was made",
            where=file,
            why="its content does not fit the seal in its header",
            todo=f"restore it with `git checkout -- {file}`, or make it again with `verlock lock`",
        )
