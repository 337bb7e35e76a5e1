"""Where libraries are read from: a wheel file, a wheel on an index, or what is installed.

Nothing is unpacked to disk. Of a wheel on an index only samples are fetched: a deflated member can be read
from its start alone, and the first containers of a library are built as all the others are.
"""

from __future__ import annotations

import io
import json
import re
import subprocess
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, BinaryIO, cast

from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from harness.build.audit import elf, library
from harness.build.index import Offer
from harness.build.ranges import RangeFile
from harness.build.web import Web
from harness.errors import AuditError, Problem, ToolMissingError

ENOUGH = 4
"""Containers in a sample. Within a library the sets of architectures hardly vary: of 393 in torch 2.8.0's
libtorch_cuda.so 389 are equal, and the other four only add to them."""
MOST = 48_000_000
"""Compressed bytes a library is sampled for. Measured before the first container: 23 MB in torch 2.7.1's
libtorch_cuda.so, 43 MB in libcublasLt.so.12 (CUDA 12.6)."""
SMALLEST = 16 << 10
"""Bytes; nothing smaller holds a kernel."""
_SECONDS = 60
"""For an interpreter to say where its packages are."""
_LIBRARY = re.compile(r"\.so(\.\d+)*$")
_STATES_ARCHITECTURES = "libtorch_python.so"  # what torch.cuda.get_arch_list() returns
# What stands before it need not end in a NUL (2.9.1).
_LIST = re.compile(rb"((?:sm|compute)_\d+[af]?(?: (?:sm|compute)_\d+[af]?)*)\0")
_PURELIB = (
    "import json, sysconfig; print(json.dumps(sorted({*map(sysconfig.get_path, ('purelib', 'platlib'))})))"
)


@dataclass(frozen=True, kw_only=True)
class Package:
    """What one distribution holds for GPUs."""

    name: str
    version: str
    origin: str
    """The wheel's file name, or the folder that it is installed in."""
    libraries: tuple[library.Library, ...]
    """Those that hold any device code."""
    missing: tuple[str, ...] = ()
    """Libraries that its RECORD names and that are not there."""
    built_for: tuple[str, ...] = ()
    """torch only: the architectures that it says itself it was built for."""


class _Sampled(io.RawIOBase):
    """A member of a remote wheel that ends when enough of the wheel was fetched."""

    def __init__(self, member: IO[bytes], wheel: RangeFile) -> None:
        super().__init__()
        self._member, self._wheel, self._before = member, wheel, wheel.fetched

    def read(self, size: int = -1) -> bytes:
        """As of any file."""
        if self._wheel.fetched - self._before > MOST:
            return b""
        return self._member.read(size)


def unfit(path: Path) -> Problem | None:
    """Why a path that the user gave can be no wheel, before any is read."""
    todo = "give a wheel file; `pip download --no-deps NAME==VERSION` fetches one"
    if path.is_dir():
        return Problem(
            what="a folder, not a wheel file", where=str(path), why="a wheel is one file", todo=todo
        )
    if not path.is_file():
        return Problem(what=f"no such file: {path}", where="--wheel", why="nothing is there", todo=todo)
    try:
        parse_wheel_filename(path.name)
    except InvalidWheelFilename as error:
        return Problem(
            what="not the name of a wheel",
            where=str(path),
            why=str(error),
            todo="keep the name that it was published under",
        )
    return None


def wheel(path: Path) -> Package:
    """Everything in a wheel file.

    Raises:
        AuditError: it is no wheel, or a damaged one.
    """
    try:
        with path.open("rb") as file:
            return _read(file, path.name)
    except OSError as error:
        raise AuditError("cannot be read", where=str(path), why=error.strerror) from None


def remote(web: Web, offer: Offer, *, skip: tuple[str, ...] = ()) -> Package:
    """Samples of a wheel on an index; ``skip`` names libraries known to hold no device code.

    Raises:
        LockError: the index does not answer.
        AuditError: what it has is no wheel, or a damaged one.
    """
    if "://" not in offer.address:
        return wheel(Path(offer.address))
    file = RangeFile(web, offer.address)
    return _read(io.BufferedReader(file, 1 << 16), offer.name, skip=skip, sampled=file)


def installed(python: Path) -> tuple[list[Package], dict[str, str]]:
    """Every package of an environment that has libraries, and name and version of all packages.

    Raises:
        ToolMissingError: there is no such interpreter.
        AuditError: a library that is damaged.
    """
    packages: list[Package] = []
    versions: dict[str, str] = {}
    for folder in _site_packages(python):
        for info in sorted(folder.glob("*.dist-info")):
            given, _, version = info.name.removesuffix(".dist-info").rpartition("-")
            name = str(canonicalize_name(given))
            versions[name] = version
            recorded = _recorded(info)
            paths = [path for path in recorded if _is_large(folder / path)]
            states = [folder / path for path in paths if path.endswith(_STATES_ARCHITECTURES)]
            found = [one for path in paths if (one := _installed_library(folder, path))]
            if recorded:
                packages.append(
                    Package(
                        name=name,
                        version=version,
                        origin=str(folder),
                        libraries=tuple(found),
                        missing=tuple(path for path in recorded if not (folder / path).exists()),
                        built_for=_stated(states[0].open("rb")) if states else (),
                    )
                )
    return packages, versions


def _site_packages(python: Path) -> list[Path]:
    try:
        done = subprocess.run(
            [python, "-I", "-c", _PURELIB],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=True,
            timeout=_SECONDS,
        )
        return [Path(name) for name in json.loads(done.stdout)]
    except OSError as error:
        why = error.strerror or "it cannot be started"
    except subprocess.CalledProcessError as error:
        said = (error.stderr.strip().splitlines() or ["it said nothing"])[-1]
        why = f"it ended with exit code {error.returncode}: {said[:200]}"
    except subprocess.TimeoutExpired:
        why = f"it gave no answer within {_SECONDS} s"
    except (ValueError, TypeError):
        why = "it answered something else than the list of folders that it was asked for"
    raise ToolMissingError(
        f"{python} does not run as a Python",
        where="--installed",
        why=why,
        todo="give the environment's interpreter, as `verlock env PROFILE` prints it",
    )


def _is_large(path: Path) -> bool:
    return path.is_file() and path.stat().st_size >= SMALLEST


def _recorded(info: Path) -> list[str]:
    with suppress(OSError, UnicodeDecodeError):
        lines = (info / "RECORD").read_text(encoding="utf-8").splitlines()
        return sorted(path for line in lines if _LIBRARY.search(path := line.split(",")[0].strip('"')))
    return []


def _installed_library(folder: Path, name: str) -> library.Library | None:
    path = folder / name
    with path.open("rb") as file:
        found = _library(name, file, size=path.stat().st_size, jumps=True)
    return found if found and found.containers else None


def _library(
    name: str, file: BinaryIO, *, size: int, jumps: bool, stop: library.Stop | None = None
) -> library.Library | None:
    """A library, or nothing where the file is something else by that name."""
    try:
        return library.read(name, file, size=size, jumps=jumps, stop=stop)
    except elf.NotElfError:
        return None
    except elf.ElfError as error:
        raise AuditError(
            "a damaged library", where=name, why=str(error), todo="install or download its package again"
        ) from None


def _read(
    file: BinaryIO, origin: str, *, skip: tuple[str, ...] = (), sampled: RangeFile | None = None
) -> Package:
    try:
        name, version, _, _ = parse_wheel_filename(origin)
        with zipfile.ZipFile(file) as archive:
            libraries = tuple(_members(archive, skip, sampled))
            states = [one for one in archive.namelist() if one.endswith(_STATES_ARCHITECTURES)]
            built_for = _stated(archive.open(states[0])) if states else ()
    except InvalidWheelFilename as error:
        raise AuditError(
            "not the name of a wheel",
            where=origin,
            why=str(error),
            todo="keep the name that it was published under",
        ) from None
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise AuditError(
            "a damaged wheel", where=origin, why=str(error) or type(error).__name__, todo="download it again"
        ) from None
    return Package(
        name=str(name), version=str(version), origin=origin, libraries=libraries, built_for=built_for
    )


def _members(
    archive: zipfile.ZipFile, skip: tuple[str, ...], wheel: RangeFile | None
) -> Iterator[library.Library]:
    for member in archive.infolist():
        base = member.filename.rpartition("/")[2]
        if not _LIBRARY.search(base) or member.file_size < SMALLEST or base in skip:
            continue
        with archive.open(member) as opened:
            stream = cast("BinaryIO", opened if wheel is None else _Sampled(opened, wheel))
            found = _library(
                member.filename,
                stream,
                size=member.file_size,
                jumps=wheel is None and member.compress_type == zipfile.ZIP_STORED,
                stop=(lambda count: count >= ENOUGH) if wheel else None,
            )
            if found and (found.containers or not found.complete):
                yield found


def _stated(file: IO[bytes]) -> tuple[str, ...]:
    """The architectures that torch was built for: the longest such string in its data."""
    kept, found = b"", b""
    with file:
        while chunk := file.read(1 << 20):
            kept = kept[-1024:] + chunk
            found = max([found, *_LIST.findall(kept)], key=len)
    return tuple(found.decode().split())
