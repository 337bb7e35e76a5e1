"""Reading parts of a remote file, so that a wheel of 800 MB can be judged by a few of them.

Range requests are plain HTTP (RFC 9110, section 14). The window doubles while reading goes straight on:
a central directory costs one small request, a long member a few large ones.
"""

from __future__ import annotations

import base64
import gzip
import http.client
import io
import ssl
import threading
import time
import urllib.error
import urllib.request
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import IO
from urllib.parse import unquote, urlsplit, urlunsplit

from harness.build.sources import Sources
from harness.errors import LockError

_SMALLEST, _LARGEST = 64 << 10, 4 << 20
_TIMEOUT = 60  # seconds without a byte
_TRIES = 3


@dataclass
class Meter:
    """What was really transferred."""

    bytes: int = 0
    requests: int = 0
    seconds: float = 0.0
    """Spent waiting for the network; requests of several threads add up."""


class Web:
    """HTTP with this machine's certificate; counts what it fetches."""

    def __init__(self, sources: Sources) -> None:
        """``sources`` says which certificate the machine trusts; proxies come from the environment."""
        context = ssl.create_default_context(cafile=sources.certificate)
        self._opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context))
        self.meter = Meter()
        self._lock = threading.Lock()

    def get(self, url: str, headers: Mapping[str, str]) -> tuple[bytes, IO[bytes]]:
        """The body, and the closed response with its headers and final address.

        Raises:
            LockError: no answer, or one that says no.
        """
        clean, login = _login(url)
        request = urllib.request.Request(clean, headers={**headers, **login})  # noqa: S310 - checked below
        if urlsplit(clean).scheme not in ("http", "https"):
            raise LockError(f"not a web address: {clean}")
        for attempt in range(1, _TRIES + 1):
            started = time.monotonic()
            try:
                with self._opener.open(request, timeout=_TIMEOUT) as response:
                    body = response.read()
                    packed = response.headers.get("Content-Encoding") == "gzip"
                with self._lock:
                    self.meter.bytes += len(body)
                    self.meter.requests += 1
                return (gzip.decompress(body) if packed else body), response
            except urllib.error.HTTPError as error:
                error.close()
                if error.code < 500 or attempt == _TRIES:
                    raise _refused(clean, f"it answers {error.code} {error.reason}") from None
            except (OSError, EOFError, zlib.error, http.client.HTTPException) as error:
                if attempt == _TRIES:
                    raise _refused(
                        clean, str(getattr(error, "reason", error)) or type(error).__name__
                    ) from None
            finally:
                with self._lock:
                    self.meter.seconds += time.monotonic() - started
            time.sleep(attempt)
        raise AssertionError  # the last try returns or raises


class RangeFile(io.RawIOBase):
    """A remote file as a seekable one."""

    def __init__(self, web: Web, url: str) -> None:
        """Ask for the file's last bytes: a zip's directory is there, and the answer tells the length.

        Raises:
            LockError: no answer, or a server that cannot send parts of a file.
        """
        super().__init__()
        self._web, self._url = web, url
        self._position, self._width = 0, _SMALLEST
        self._window, self._start = b"", 0
        self.fetched = 0  # bytes
        total = self._fetch(f"-{_SMALLEST}")
        self.size, self._start = total, total - len(self._window)

    def readable(self) -> bool:
        """Yes."""
        return True

    def seekable(self) -> bool:
        """Yes."""
        return True

    def tell(self) -> int:
        """The position."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move; nothing is fetched yet."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]  # typeshed: Buffer
        """Fill from the window, or fetch the next one."""
        if self._position >= self.size:
            return 0
        if not self._start <= self._position < self._start + len(self._window):
            straight_on = self._position == self._start + len(self._window)
            self._width = min(self._width * 2, _LARGEST) if straight_on else _SMALLEST
            last = min(self.size, self._position + self._width) - 1
            self._fetch(f"{self._position}-{last}")
            self._start = self._position
        at = self._position - self._start
        piece = self._window[at : at + len(buffer)]
        buffer[: len(piece)] = piece
        self._position += len(piece)
        return len(piece)

    def _fetch(self, span: str) -> int:
        """Get a window; the file's length, which the answer states as ``bytes 0-9/1234``."""
        headers = {"Range": f"bytes={span}", "Accept-Encoding": "identity"}
        self._window, response = self._web.get(self._url, headers)
        stated = str(getattr(response, "headers", {}).get("Content-Range", ""))
        self.fetched += len(self._window)
        _, _, total = stated.partition("/")
        if not total.isdigit() or not self._window:
            raise _refused(
                self._url,
                "it does not send parts of files",
                todo="download the wheel and give it with --wheel, or use another index",
            )
        return int(total)


def _login(url: str) -> tuple[str, dict[str, str]]:
    """The address without user and password, and the header that carries them."""
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    if not at:
        return url, {}
    token = base64.b64encode(unquote(user).encode()).decode()
    return urlunsplit(parts._replace(netloc=host)), {"Authorization": f"Basic {token}"}


def _refused(url: str, why: str, todo: str | None = None) -> LockError:
    return LockError(
        f"cannot read {url}",
        why=why,
        todo=todo or "check the network; PIP_INDEX_URL sets a mirror, PIP_FIND_LINKS a folder of wheels",
    )
