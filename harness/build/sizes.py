"""What a lock costs before anything is fetched: bytes to download and bytes on disk, by package.

Both stand in the answer to one range request for a wheel's end: its length, and its central directory. A
locked file never changes, so what was found once is kept in ``.verlock/sizes``.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import zipfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from packaging.tags import Tag

from harness.build import files, index, resolve, sources
from harness.build.lockfile import Pin
from harness.build.ranges import RangeFile
from harness.build.web import Web
from harness.errors import DiskFullError, LockError, Problem, RecordError
from harness.profiles import LockTarget, Profile, root

_TOGETHER = 8  # requests at a time
_LARGEST_SOURCE = 32 << 20  # bytes; a source archive has no directory and is fetched whole


@dataclass(frozen=True, kw_only=True)
class Size:
    """What one package costs."""

    name: str
    version: str
    file: str
    download: int
    """Bytes of the file."""
    disk: int
    """Bytes that it unpacks to, without the byte code that Python adds."""


def measure(profile: Profile, target: LockTarget, pins: Iterable[Pin]) -> list[Size]:
    """The size of every locked package, largest download first.

    Raises:
        LockError: with one problem for each package whose file cannot be found or read.
    """
    cache = root() / ".verlock" / "sizes" / f"{profile.name}-{target.name}.json"
    known = _remembered(cache)
    wanted = {_key(pin, target): pin for pin in pins}
    missing = {key: pin for key, pin in wanted.items() if key not in known}
    found, problems = _ask(profile, target, missing) if missing else ({}, [])
    sizes = {key: size for key, size in (known | found).items() if key in wanted}
    if found:
        # A cache that cannot be written costs the next run some seconds, and is no failure of this one.
        with suppress(RecordError, DiskFullError):
            files.write(
                cache, json.dumps({key: asdict(size) for key, size in sizes.items()}, indent=1) + "\n"
            )
    if problems:
        raise LockError(*sorted(problems, key=lambda problem: problem.what))
    return sorted(sizes.values(), key=lambda size: (-size.download, size.name))


def _ask(profile: Profile, target: LockTarget, pins: dict[str, Pin]) -> tuple[dict[str, Size], list[Problem]]:
    """Sizes by key, and a problem for each package that has none."""
    here = sources.here()
    tags = index.target_tags(profile, target)
    problems: list[Problem] = []
    with Web(here) as web, ThreadPoolExecutor(_TOGETHER) as pool:
        places = index.Index(web, here, first=resolve.torch_index(target, here))

        def one(item: tuple[str, Pin]) -> tuple[str, Size] | None:
            try:
                return item[0], _measure(web, places, item[1], tags)
            except LockError as error:
                problems.extend(error.problems)
                return None

        return dict(entry for entry in pool.map(one, pins.items()) if entry), problems


def _measure(web: Web, places: index.Index, pin: Pin, tags: list[Tag]) -> Size:
    offer = places.find(pin.name, version=pin.version, hashes=pin.hashes, tags=tags)
    if offer is None:
        raise LockError(
            f"{pin.name} {pin.version}: no index or folder here has a file that the lock allows",
            todo="PIP_INDEX_URL sets a mirror, PIP_FIND_LINKS a folder of wheels",
        )
    try:
        download, disk = _sizes(web, offer)
    except (zipfile.BadZipFile, tarfile.TarError, OSError, EOFError) as error:
        raise LockError(f"{offer.name}: a damaged file", where=offer.address, why=str(error)) from None
    return Size(name=pin.name, version=pin.version, file=offer.name, download=download, disk=disk)


def _sizes(web: Web, offer: index.Offer) -> tuple[int, int]:
    if "://" not in offer.address:
        path = Path(offer.address)
        with zipfile.ZipFile(path) as archive:
            return path.stat().st_size, _unpacked(archive)
    if offer.name.endswith(".tar.gz"):
        body = web.get(offer.address, {}, most=_LARGEST_SOURCE).body
        with tarfile.open(fileobj=io.BytesIO(body)) as source:
            return len(body), sum(member.size for member in source)
    file = RangeFile(web, offer.address)
    with zipfile.ZipFile(io.BufferedReader(file, 1 << 16)) as archive:
        return file.size, _unpacked(archive)


def _unpacked(archive: zipfile.ZipFile) -> int:
    return sum(member.file_size for member in archive.infolist())


def _key(pin: Pin, target: LockTarget) -> str:
    """Another lock, or another platform, may mean another file."""
    allowed = " ".join([target.python_platform, *sorted(pin.hashes)])
    return f"{pin.name}=={pin.version} {hashlib.sha256(allowed.encode()).hexdigest()[:16]}"


def _remembered(cache: Path) -> dict[str, Size]:
    """What an earlier run found; nothing, if the file is absent or damaged."""
    with suppress(OSError, ValueError, TypeError, AttributeError):
        found = json.loads(cache.read_text(encoding="utf-8"))
        return {str(key): Size(**entry) for key, entry in found.items()}
    return {}
