"""Asking a package index which files it offers: the simple API, as JSON (PEP 691) or HTML (PEP 503)."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

from packaging.tags import Tag, compatible_tags, cpython_tags, mac_platforms
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from harness.build.sources import Sources
from harness.build.web import Web
from harness.errors import LockError
from harness.profiles import LockTarget, Profile

DEFAULT = "https://pypi.org/simple"
"""Where pip and uv look when nothing else is configured."""
_ACCEPT = "application/vnd.pypi.simple.v1+json, text/html;q=0.1"
# The names that manylinux tags had before PEP 600, by the glibc they stand for.
_OLD_NAMES = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}


@dataclass(frozen=True, kw_only=True)
class Release:
    """One version of a package on an index."""

    version: str
    uploaded: str | None
    """When its last file came; none where the index does not say it."""


@dataclass(frozen=True, kw_only=True)
class Offer:
    """One file of a release."""

    name: str
    """Its file name."""
    address: str
    """Where it is: a web address, or a path on this machine."""
    sha256: str | None = None
    uploaded: str | None = None
    """When, in ISO 8601, where the index says it (PEP 700)."""
    yanked: bool = False

    @property
    def version(self) -> str:
        """As the file name has it: ``name-version-...whl`` or ``name-version.tar.gz``."""
        if self.name.endswith(".whl"):
            return self.name.split("-")[1]
        return self.name.removesuffix(".zip").removesuffix(".tar.gz").rpartition("-")[2]


class Index:
    """The places that this machine takes packages from, in the order in which they are asked."""

    def __init__(self, web: Web, sources: Sources, *, first: str | None = None) -> None:
        """``first`` is an index that goes before all others, as torch's own does."""
        self._web, self._sources = web, sources
        self._addresses = [*([first] if first else []), sources.index or DEFAULT, *sources.extra_indexes]

    def find(self, package: str, *, version: str, hashes: Iterable[str], tags: list[Tag]) -> Offer | None:
        """The file that an installer takes; a folder of wheels that has it makes asking an index needless.

        Raises:
            LockError: it was not found, and one of the indexes did not answer or does not know the package.
        """
        allowed = frozenset(hashes)
        found = choose(_local(self._sources, package), version=version, hashes=allowed, tags=tags)
        refusals: list[LockError] = []
        for address in self._addresses:
            if found:
                break
            try:
                offers = self._page(f"{address.rstrip('/')}/{canonicalize_name(package)}/")
            except LockError as error:
                refusals.append(error)
                continue
            found = choose(offers, version=version, hashes=allowed, tags=tags)
        if not found and refusals:
            raise refusals[0]
        return found

    def releases(self, package: str) -> list[Release]:
        """The versions of a package on the index that are not withdrawn, in the order of the page.

        Raises:
            LockError: the index does not answer, or does not know the package.
        """
        address = self._addresses[-1 - len(self._sources.extra_indexes)]
        found: dict[str, str | None] = {}
        for offer in self._page(f"{address.rstrip('/')}/{canonicalize_name(package)}/"):
            if not offer.yanked and offer.name.endswith((".whl", ".tar.gz")):
                known = found.get(offer.version)
                found[offer.version] = max(filter(None, (known, offer.uploaded)), default=None)
        return [Release(version=version, uploaded=uploaded) for version, uploaded in found.items()]

    def _page(self, address: str) -> list[Offer]:
        answer = self._web.get(address, {"Accept": _ACCEPT, "Accept-Encoding": "gzip"})
        return parse(answer.body.decode("utf-8", "replace"), base=answer.url, json_page="json" in answer.kind)


def parse(text: str, *, base: str, json_page: bool) -> list[Offer]:
    """The files of one page. Pure.

    Raises:
        LockError: the page is not what the simple API says.
    """
    if not json_page:
        page = _Links(base)
        page.feed(text)
        return page.offers
    try:
        return [
            Offer(
                name=str(file["filename"]),
                address=urljoin(base, str(file["url"])),
                sha256=file.get("hashes", {}).get("sha256"),
                uploaded=file.get("upload-time"),
                yanked=bool(file.get("yanked")),
            )
            for file in json.loads(text)["files"]
        ]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise LockError(
            "an index page that is none", where=base, why=f"{type(error).__name__}: {error}"
        ) from None


def choose(offers: Iterable[Offer], *, version: str, hashes: Iterable[str], tags: list[Tag]) -> Offer | None:
    """The file that an installer takes: the best wheel for the tags, else the source.

    Args:
        offers: what is there.
        version: the locked one.
        hashes: what the lock allows; a file with another hash is not it. Empty: any file of the version.
        tags: what the target accepts, best first.
    """
    allowed, ranks = frozenset(hashes), {tag: rank for rank, tag in enumerate(tags)}
    best: tuple[int, Offer] | None = None
    for offer in offers:
        if (allowed and offer.sha256 and offer.sha256 not in allowed) or not _is(offer, version):
            continue
        rank = _rank(offer, ranks)
        if rank is not None and (best is None or rank < best[0]):
            best = (rank, offer)
    return best[1] if best else None


def target_tags(profile: Profile, target: LockTarget) -> list[Tag]:
    """The wheel tags that a lock target accepts, best first; the machine this runs on does not matter."""
    python = tuple(map(int, profile.software.python.split(".")))
    machine, _, rest = target.python_platform.partition("-")
    if target.system == "darwin":
        floor = tuple(map(int, (profile.software.macos_floor or "13.0").split(".")))
        platforms = list(mac_platforms((floor[0], floor[1]), "arm64" if machine == "aarch64" else machine))
    else:
        glibc = int(rest.rpartition("_")[2])
        platforms = [
            name
            for minor in range(glibc, 4, -1)
            for name in (
                f"manylinux_2_{minor}_{machine}",
                *([f"{_OLD_NAMES[minor]}_{machine}"] if minor in _OLD_NAMES else []),
            )
        ] + [f"linux_{machine}"]
    interpreter = f"cp{python[0]}{python[1]}"
    return [
        *cpython_tags(python, platforms=platforms),
        *compatible_tags(python, interpreter=interpreter, platforms=platforms),
    ]


def _is(offer: Offer, version: str) -> bool:
    return offer.version.replace("_", "-") == version.replace("_", "-")


def _rank(offer: Offer, ranks: dict[Tag, int]) -> int | None:
    if not offer.name.endswith(".whl"):
        return len(ranks) if offer.name.endswith((".tar.gz", ".zip")) else None
    try:
        tags = parse_wheel_filename(offer.name)[3]
    except InvalidWheelFilename:
        return None
    return min((ranks[tag] for tag in tags if tag in ranks), default=None)


def _local(sources: Sources, package: str) -> list[Offer]:
    return [
        Offer(
            name=unquote(file.name),
            address=str(file),
        )
        for folder in sources.folders()
        for file in sorted(Path(folder).glob("*.whl"))
        if canonicalize_name(unquote(file.name).partition("-")[0]) == canonicalize_name(package)
    ]


class _Links(HTMLParser):
    """The links of a PEP 503 page; the hash is in the fragment."""

    def __init__(self, base: str) -> None:
        super().__init__()
        self.offers: list[Offer] = []
        self._base = base

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take an ``<a href>``."""
        href = dict(attrs).get("href")
        if tag != "a" or not href:
            return
        address, _, fragment = urljoin(self._base, href).partition("#")
        name = unquote(urlsplit(address).path.rpartition("/")[2])
        digest = fragment.removeprefix("sha256=") if fragment.startswith("sha256=") else None
        self.offers.append(Offer(name=name, address=address, sha256=digest))
