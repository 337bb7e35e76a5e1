"""Open connections that are used again: a lock of 250 packages asks two hosts 500 times.

Measured for the cpu lock, 8 threads: 38 s with a connection for each request, of which nearly all was name
look-ups that timed out, and 3 s with connections kept.
"""

from __future__ import annotations

import base64
import http.client
import ssl
import threading
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

_TIMEOUT = 60  # seconds without a byte


@dataclass(frozen=True, kw_only=True)
class Reply:
    """One answer, redirects not followed."""

    status: int
    reason: str
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes
    cut: bool
    """More was sent than was wanted."""


class Connections:
    """A pool for one process; each connection serves one request at a time."""

    def __init__(self, certificate: str | None) -> None:
        """``certificate``: a file of authorities to trust; None means the system's."""
        self._context = ssl.create_default_context(cafile=certificate)
        self._idle: dict[tuple[str, str], list[http.client.HTTPConnection]] = defaultdict(list)
        self._lock = threading.Lock()

    def close(self) -> None:
        """Close what is idle."""
        with self._lock:
            for connections in self._idle.values():
                for connection in connections:
                    connection.close()
            self._idle.clear()

    def get(self, url: SplitResult, headers: Mapping[str, str], *, most: int) -> Reply:
        """One GET; of the body at most ``most`` bytes.

        Raises:
            OSError: no connection, or one that broke.
            http.client.HTTPException: an answer that is no HTTP.
        """
        key = (url.scheme, url.netloc)
        with self._lock:
            kept = self._idle[key].pop() if self._idle[key] else None
        connection = kept or self._connect(url)
        try:
            try:
                response = self._send(connection, url, headers)
            except (OSError, http.client.HTTPException):
                if kept is None:
                    raise
                # The server has closed what was idle; that says nothing about the address.
                connection.close()
                connection = self._connect(url)
                response = self._send(connection, url, headers)
            body = response.read(most)
            cut = bool(response.read(1))
            reply = Reply(
                status=response.status,
                reason=response.reason,
                headers={name.lower(): value for name, value in response.headers.items()},
                body=body,
                cut=cut,
            )
            short = bool(response.length) and not cut
        except BaseException:
            connection.close()
            raise
        if cut or short or response.will_close:
            connection.close()
        else:
            with self._lock:
                self._idle[key].append(connection)
        if short:
            raise http.client.IncompleteRead(body, response.length)
        return reply

    def _send(
        self, connection: http.client.HTTPConnection, url: SplitResult, headers: Mapping[str, str]
    ) -> http.client.HTTPResponse:
        target = (url.path or "/") + (f"?{url.query}" if url.query else "")
        proxied = _proxy(url)
        extra: dict[str, str] = {}
        if proxied and url.scheme == "http":
            target, extra = f"http://{url.netloc}{target}", _authorization(proxied)
        connection.request("GET", target, headers={**headers, **extra})
        return connection.getresponse()

    def _connect(self, url: SplitResult) -> http.client.HTTPConnection:
        proxy = _proxy(url)
        via = proxy or url
        host, port = via.hostname or "", via.port or (443 if via.scheme == "https" else 80)
        if url.scheme == "http":
            return http.client.HTTPConnection(host, port, timeout=_TIMEOUT)
        connection = http.client.HTTPSConnection(host, port, timeout=_TIMEOUT, context=self._context)
        if proxy:
            connection.set_tunnel(url.hostname or "", url.port or 443, headers=_authorization(proxy))
        return connection


def _proxy(url: SplitResult) -> SplitResult | None:
    """The proxy that the environment names for an address."""
    address = getproxies().get(url.scheme)
    if not address or proxy_bypass(url.hostname or ""):
        return None
    return urlsplit(address if "://" in address else f"http://{address}")


def _authorization(proxy: SplitResult) -> dict[str, str]:
    user, at, _ = proxy.netloc.rpartition("@")
    if not at:
        return {}
    return {"Proxy-Authorization": f"Basic {base64.b64encode(unquote(user).encode()).decode()}"}
