"""``verlock bundle RUN``: a record as one archive for a bug report, with nothing that is its owner's alone.

Only text goes along, cleaned line by line; weights, rows and other binaries stay, and the list says so. The
same record gives the same bytes: no times, owners or order of the file system are in the archive.
"""

from __future__ import annotations

import getpass
import gzip
import hashlib
import html
import io
import json
import os
import re
import socket
import tarfile
from collections import Counter
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path, PurePosixPath
from typing import Any

import psutil
from pydantic import BaseModel, ConfigDict

from harness.errors import BundleError
from harness.evidence.files import explain
from harness.evidence.health import samples
from harness.evidence.model import Run, load
from harness.evidence.redact import Kind, Own, clean, secrets_in, users_in
from harness.profiles.load import root

LIST = "BUNDLE.json"
_TEXT = frozenset(
    {".cfg", ".diff", ".err", ".html", ".json", ".jsonl", ".log", ".md", ".out", ".txt", ".yaml", ".yml"}
)
# On a page they would be tags, and not be seen.
_STAND_INS = re.compile(r"<(?:run|verlock|folder|removed:secret|address|host|user|mail)>")
_LARGEST = 16 << 20
# Rows are the user's; the tiny ones are made again from the seed.
_INPUTS = "inputs"
# A name that is nobody's: it stands in every path of a container.
_NOBODY = frozenset({"root", "user", "ubuntu", "localhost", "localhost.localdomain"})


class Contents(BaseModel):
    """What went into the archive, what was taken out of it, and what stayed: ``BUNDLE.json`` in it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: int = 1
    run: str
    files: dict[str, str]
    """SHA-256 of each file in the archive."""
    removed: dict[str, dict[str, int]]
    """By file: how many secrets, home paths, names, addresses were replaced. Never what they were."""
    left_out: dict[str, str]
    """File to reason."""

    def added(self) -> dict[str, int]:
        """How many were replaced in all files together, by kind."""
        added: Counter[str] = Counter()
        for counts in self.removed.values():
            added.update(counts)
        return dict(sorted(added.items()))


def own(folder: Path, run: Run, environ: Mapping[str, str]) -> Own:
    """What is this machine's, this user's and this record's alone."""
    names = {
        getpass.getuser(),
        environ.get("USER", ""),
        environ.get("LOGNAME", ""),
        environ.get("SUDO_USER", ""),
    }
    hosts = {socket.gethostname(), socket.gethostname().partition(".")[0], *_hosts(folder)}
    places = {str(folder.absolute()): "<run>", str(folder.resolve()): "<run>", str(root()): "<verlock>"}
    if run.given:
        places.setdefault(run.given.folder, "<folder>")
    return Own(
        secrets=secrets_in(environ),
        homes=frozenset({str(Path.home())} - {"/"}),
        users=frozenset(name for name in names if len(name) >= 2 and name.lower() not in _NOBODY),
        hosts=frozenset(name for name in hosts if len(name) >= 2 and name.lower() not in _NOBODY),
        addresses=frozenset(_addresses()),
        folders={place: name for place, name in places.items() if place != "/"},
        packages=frozenset(_packages(run)),
    )


def _hosts(folder: Path) -> Iterator[str]:
    """The host of the record, by the name of TensorBoard's file: events.out.tfevents.TIME.HOST.PID.N."""
    for path in folder.rglob("events.out.tfevents.*"):
        yield ".".join(path.name.split(".")[4:-2])


def _packages(run: Run) -> Iterator[str]:
    """Names that a version may stand behind: the record's own, and what is installed here."""
    here = (distribution.name for distribution in metadata.distributions())
    for name in (*run.versions, *here):
        yield name.lower().replace("_", "-")


def _addresses() -> Iterator[str]:
    for interface in psutil.net_if_addrs().values():
        for address in interface:
            text = address.address.partition("%")[0]
            if address.family in {socket.AF_INET, socket.AF_INET6} and text not in {"127.0.0.1", "::1"}:
                yield text


def pack(folder: Path, target: Path, environ: Mapping[str, str] = os.environ) -> Contents:
    """Write the archive; returns what is in it.

    Raises:
        RecordError: the record cannot be read, or the archive not written.
        BundleError: there is a file already, or something that must not go along is still in.
    """
    run = load(folder)
    if target.exists():
        raise BundleError(
            "there is a file already",
            where=str(target),
            todo="choose another name with --out, or move it away",
        )
    taken, left_out = _texts(folder)
    mine = own(folder, run, environ)
    betrayed = frozenset(name for text in taken.values() for name in users_in(text)) - _NOBODY
    mine = Own(**{**vars(mine), "users": mine.users | betrayed})
    files: dict[str, str] = {}
    removed: dict[str, Counter[Kind]] = {}
    for name, text in taken.items():
        shown, in_name = clean(name, mine)
        files[shown], counts = clean(text, mine)
        if name.endswith(".html"):
            files[shown] = _STAND_INS.sub(lambda found: html.escape(found[0]), files[shown])
        if counts + in_name:
            removed[shown] = counts + in_name
    _prove_clean(files, mine)
    contents = Contents(
        run=run.id,
        files={name: hashlib.sha256(text.encode()).hexdigest() for name, text in sorted(files.items())},
        removed={name: {str(k): v for k, v in sorted(c.items())} for name, c in sorted(removed.items())},
        left_out={clean(name, mine)[0]: why for name, why in sorted(left_out.items())},
    )
    files[LIST] = contents.model_dump_json(indent=2) + "\n"
    _write(target, _archive(run.id, files))
    return contents


def _texts(folder: Path) -> tuple[dict[str, str], dict[str, str]]:
    """The text files by name, and the rest with the reason why it stays."""
    taken: dict[str, str] = {}
    left_out: dict[str, str] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_dir() and not path.is_symlink():
            continue
        why = _stays(path, PurePosixPath(name))
        if why:
            left_out[name] = why
            continue
        try:
            taken[name] = path.read_bytes().decode("utf-8", errors="replace")
        except OSError as error:
            left_out[name] = f"cannot be read: {error.strerror}"
    return taken, left_out


def _stays(path: Path, name: PurePosixPath) -> str | None:
    if path.is_symlink() or not path.is_file():
        return "a link, socket or pipe"
    if name.parts[0] == _INPUTS:
        return "model and rows"
    if not set(samples.FOLDERS.values()).isdisjoint(name.parts):  # also below a rung's own folder
        return "prompts and responses"
    if path.suffix not in _TEXT:
        return "not text"
    size = path.stat().st_size
    return f"{size} bytes: too large" if size > _LARGEST else None


def _prove_clean(files: Mapping[str, str], mine: Own) -> None:
    """Look again: what was put in the place of one thing must not make another."""
    still = {name: found for name, text in files.items() if (found := clean(text, mine)[1])}
    if still:
        name, found = next(iter(still.items()))
        raise BundleError(
            f"{sum(found.values())} things that must not go along would still be in it",
            where=f"{name}: {', '.join(map(str, found))}",
            todo="report it: no archive was written",
        )


def _archive(top: str, files: Mapping[str, str]) -> bytes:
    packed = io.BytesIO()
    # mtime 0 and no name in gzip's head; ustar's numbers are all zero.
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", mtime=0, filename="") as stream,
        tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name, text in sorted(files.items()):
            data = text.encode()
            entry = tarfile.TarInfo(f"{top}/{name}")
            entry.size, entry.mode = len(data), 0o644
            archive.addfile(entry, io.BytesIO(data))
    return packed.getvalue()


def _write(target: Path, data: bytes) -> None:
    beside = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        beside.write_bytes(data)
        os.link(beside, target)  # unlike a rename it refuses a file that came in the meantime
    except FileExistsError:
        raise BundleError("there is a file already", where=str(target), todo="choose another name") from None
    except OSError as error:
        raise explain(error, target, what="write the bundle") from error
    finally:
        beside.unlink(missing_ok=True)


def listed(archive: Path) -> dict[str, Any]:
    """``BUNDLE.json`` of an archive, for those who get one."""
    with tarfile.open(archive) as opened:
        name = next(n for n in opened.getnames() if n.endswith(f"/{LIST}"))
        member = opened.extractfile(name)
        return dict(json.load(member)) if member else {}
