"""Reading parts of a remote file, so that a wheel of 800 MB can be judged by a few of them.

Range requests are plain HTTP (RFC 9110, section 14). The window doubles while reading goes straight on:
a central directory costs one small request, a long member a few large ones.
"""

from __future__ import annotations

import io

from harness.build.web import Web, refused

_SMALLEST, _LARGEST = 64 << 10, 4 << 20


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
        self.size = self._fetch(f"-{_SMALLEST}", most=_SMALLEST)
        self._start = self.size - len(self._window)

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
            self._fetch(f"{self._position}-{last}", most=self._width)
            self._start = self._position
        at = self._position - self._start
        piece = self._window[at : at + len(buffer)]
        buffer[: len(piece)] = piece
        self._position += len(piece)
        return len(piece)

    def _fetch(self, span: str, *, most: int) -> int:
        """Get a window; the file's length, which the answer states as ``bytes 0-9/1234``."""
        headers = {"Range": f"bytes={span}", "Accept-Encoding": "identity"}
        answer = self._web.get(self._url, headers, most=most)
        self._window = answer.body
        self.fetched += len(answer.body)
        _, _, total = answer.span.partition("/")
        if total.isdigit() and answer.body:
            return int(total)
        if not answer.span and span.startswith("-"):
            return len(answer.body)  # so short that the server sent the whole of it
        todo = "download the wheel and give it with --wheel, or use another index"
        raise refused(self._url, "it does not send parts of files", todo)
