"""What is on disk of a distribution, against the RECORD that came in its wheel.

The lock holds the wheel's hash, the wheel holds RECORD, and RECORD holds the hash of each file: whoever
installed the lock has files whose hashes are RECORD's. Measured for torch, verl and ray of the cpu lock
(15,549 files, 862 MiB) on 2 cores: hashing all of them takes 0.7 s of CPU and 1.2 s in two threads, with
the files in memory; asking the system for the 5,400 that a process can load takes 20 ms.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import os
import socket
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from packaging.utils import canonicalize_name

HASHED = ("ray", "torch", "verl")
_INFO = ".dist-info"
_AT_ONCE = 1 << 20
_CODE = (".py", ".so", ".dylib", ".pyd")


@dataclass(frozen=True, kw_only=True)
class File:
    """A row of RECORD: the path below site-packages, and the hash as RECORD spells it."""

    path: str
    algorithm: str
    digest: str

    @property
    def loaded(self) -> bool:
        """Whether a process can load it: Python code or a shared library (``libx.so.1`` too)."""
        name = self.path.rpartition("/")[2]
        return name.endswith(_CODE) or ".so." in name


@dataclass(frozen=True, kw_only=True)
class Distribution:
    """A distribution and the files that RECORD lists with a hash."""

    name: str
    site: Path
    files: tuple[File, ...]

    @property
    def content(self) -> str:
        """SHA-256 over what the wheel brought: paths and hashes, without what an installer wrote.

        Scripts lie outside of site-packages and name the interpreter's path in their first line.
        """
        lines = sorted(
            f"{file.path} {file.digest}\n"
            for file in self.files
            if _INFO not in file.path.partition("/")[0] and not file.path.startswith("..")
        )
        return hashlib.sha256("".join(lines).encode()).hexdigest()


def site_packages() -> Path:
    """Where this interpreter's distributions are; not ``sys.path``, which Ray and users add to."""
    return Path(sysconfig.get_path("purelib")).resolve()


def versions(site: Path) -> dict[str, str]:
    """Name to version of every distribution, by the names of their folders (2 ms; the METADATA: 100)."""
    found = {}
    with os.scandir(site) as entries:
        for entry in entries:
            name, _, version = entry.name.removesuffix(_INFO).rpartition("-")
            if entry.name.endswith(_INFO) and name:
                found[str(canonicalize_name(name))] = version
    return found


def read(name: str, site: Path) -> Distribution | None:
    """The distribution, or none where it or its RECORD is not there."""
    folder = next((f for f in site.glob(f"*{_INFO}") if _is(f.name, name)), None)
    try:
        text = (folder / "RECORD").read_text(encoding="utf-8") if folder else None
    except OSError:
        text = None
    return None if text is None else Distribution(name=name, site=site, files=tuple(rows(text)))


def _is(folder: str, name: str) -> bool:
    return canonicalize_name(folder.removesuffix(_INFO).rpartition("-")[0]) == name


def rows(text: str) -> Iterator[File]:
    """The rows of RECORD that have a hash; RECORD itself and byte code have none."""
    for row in csv.reader(text.splitlines()):
        algorithm, found, digest = row[1].partition("=") if len(row) > 1 else ("", "", "")
        if found:
            yield File(path=row[0], algorithm=algorithm, digest=digest)


def differing(distribution: Distribution, *, threads: int = 1) -> list[str]:
    """The paths of files that are gone, or whose content is not what RECORD says. hashlib frees the GIL."""
    # The largest first: libtorch_cpu.so has half of all bytes.
    known = [(file, _size(distribution.site / file.path)) for file in distribution.files]
    ordered = [file for file, _size_ in sorted(known, key=lambda one: -one[1])]
    if threads == 1:
        return sorted(_differing(distribution.site, ordered))
    big, small = ordered[:8], ordered[8:]
    parts = [[file] for file in big] + [small[n :: threads * 8] for n in range(threads * 8)]
    with ThreadPoolExecutor(threads) as pool:
        return sorted(
            p for part in pool.map(lambda f: list(_differing(distribution.site, f)), parts) for p in part
        )


def _differing(site: Path, files: Sequence[File]) -> Iterator[str]:
    for file in files:
        try:
            found = _hash(f"{site}/{file.path}", file.algorithm)
        except (OSError, ValueError):
            found = b""
        if base64.urlsafe_b64encode(found).rstrip(b"=").decode() != file.digest:
            yield file.path


def _hash(path: str, algorithm: str) -> bytes:
    """Half the time of ``hashlib.file_digest``, which makes a buffer of 256 KB for each small file."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        digest = hashlib.new(algorithm)
        size = min(os.fstat(descriptor).st_size + 1, _AT_ONCE)
        while block := os.read(descriptor, size):
            digest.update(block)
        return digest.digest()
    finally:
        os.close(descriptor)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def state(distribution: Distribution) -> str:
    """SHA-256 over what the kernel says of each file that a process can load, and of the running kernel.

    The same value later means the same files, not written to: a write moves the time, and a file put in
    another's place has another number. Only who sets the time back on purpose is missed. The time of change
    (ctime) would see that too, but it also moves with each hard link, and so whenever uv makes another
    environment from its cache. The kernel's boot id keeps a file of another machine apart, even where an
    image gives it the same number and time.
    """
    total = hashlib.sha256(_kernel().encode())
    for file in distribution.files:
        if file.loaded:
            total.update(f"{file.path} {_identity(f'{distribution.site}/{file.path}')}\n".encode())
    return total.hexdigest()


def _identity(path: str) -> str:
    try:
        s = os.stat(path)  # noqa: PTH116 - 5,400 times: a Path would double the time
    except OSError as error:
        return str(error.errno)
    return f"{s.st_dev} {s.st_ino} {s.st_size} {s.st_mtime_ns}"


@cache
def _kernel() -> str:
    if sys.platform == "linux":
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8")
    return socket.gethostname()


def total_bytes(distributions: Iterable[Distribution]) -> int:
    """The size on disk of all listed files."""
    return sum(_size(d.site / file.path) for d in distributions for file in d.files)
