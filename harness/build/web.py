"""HTTP as this machine is set up for it: its certificate, its proxies, a login in an index's address."""

from __future__ import annotations

import base64
import gzip
import http.client
import threading
import time
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self
from urllib.parse import SplitResult, unquote, urljoin, urlsplit

from harness.build.connections import Connections, Reply
from harness.build.sources import Sources
from harness.errors import LockError

_TRIES = 3
_REDIRECTS = 5
_MOST = 256 << 20  # bytes; an index page has 1 MB


@dataclass
class Meter:
    """What was really transferred."""

    bytes: int = 0
    """Bodies as they came over the network, packed where they were packed."""
    requests: int = 0


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a server sent."""

    body: bytes
    url: str
    """The address that answered, after redirects."""
    kind: str
    """Its content type."""
    span: str
    """``bytes 0-9/1234`` for a part, empty for a whole file."""


class Web:
    """Fetches, and counts what it fetches. Serves several threads; its connections close with the context."""

    def __init__(self, sources: Sources) -> None:
        """``sources`` says which certificate the machine trusts; proxies come from the environment."""
        self._connections = Connections(sources.certificate)
        self._lock = threading.Lock()
        self._logins: dict[str, str] = {}
        self.meter = Meter()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connections.close()

    def get(self, url: str, headers: Mapping[str, str], *, most: int = _MOST) -> Answer:
        """Fetch an address; more than ``most`` bytes are not taken.

        Raises:
            LockError: no answer, one that says no, or one that is longer.
        """
        for _ in range(_REDIRECTS):
            parts = self._without_login(url)
            reply = self._retried(parts, headers, most)
            if reply.status in (301, 302, 303, 307, 308) and reply.headers.get("location"):
                url = urljoin(parts.geturl(), reply.headers["location"])
                continue
            if reply.status not in (200, 206):
                raise refused(parts.geturl(), f"it answers {reply.status} {reply.reason}")
            if reply.cut:
                raise refused(parts.geturl(), f"it sends more than the {most} bytes that were asked for")
            return Answer(
                body=_unpacked(parts, reply),
                url=parts.geturl(),
                kind=reply.headers.get("content-type", ""),
                span=reply.headers.get("content-range", ""),
            )
        raise refused(url, f"more than {_REDIRECTS} redirects")

    def _retried(self, url: SplitResult, headers: Mapping[str, str], most: int) -> Reply:
        # By host: another one that the index points to must not see it.
        login = {"Authorization": self._logins[url.netloc]} if url.netloc in self._logins else {}
        why = ""
        for attempt in range(_TRIES):
            time.sleep(attempt)
            try:
                reply = self._connections.get(url, {**headers, **login}, most=most)
            except (OSError, http.client.HTTPException) as error:
                why = str(error) or type(error).__name__
                continue
            with self._lock:
                self.meter.bytes += len(reply.body)
                self.meter.requests += 1
            if reply.status < 500:
                return reply
            why = f"it answers {reply.status} {reply.reason}"
        raise refused(url.geturl(), why)

    def _without_login(self, url: str) -> SplitResult:
        """The address in parts; a login in it is kept for its host, where the index's files may be too."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise LockError(f"not a web address: {url}")
        user, _, host = parts.netloc.rpartition("@")
        if user:
            self._logins[host] = f"Basic {base64.b64encode(unquote(user).encode()).decode()}"
        return parts._replace(netloc=host, fragment="")


def refused(url: str, why: str, todo: str | None = None) -> LockError:
    """The error for an address that does not give what it should."""
    return LockError(
        f"cannot read {url}",
        why=why,
        todo=todo or "check the network; PIP_INDEX_URL sets a mirror, PIP_FIND_LINKS a folder of wheels",
    )


def _unpacked(url: SplitResult, reply: Reply) -> bytes:
    if reply.headers.get("content-encoding") != "gzip":
        return reply.body
    try:
        return gzip.decompress(reply.body)
    except (OSError, EOFError, zlib.error) as error:
        raise refused(url.geturl(), f"its answer is damaged: {error}") from None
