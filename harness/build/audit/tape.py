"""A file that is read forwards, with a memory of its last bytes: an open file, or a stream being inflated."""

from __future__ import annotations

from collections import deque
from typing import BinaryIO

_CHUNK = 1 << 20
_TAIL = 4 << 20  # bytes; section table and names are the last thing in a library, a few KiB as a rule


class Tape:
    """The window of a file around the position, so that memory stays bounded whatever the file holds."""

    def __init__(self, file: BinaryIO, *, size: int, jumps: bool) -> None:
        """With ``jumps``, ``seek`` is cheap; without, the file is never sought in at all."""
        self.jumps = jumps
        self._file, self._size = file, size
        self._buffer, self._start, self._at = b"", 0, 0
        self._tail: deque[bytes] = deque()

    @property
    def position(self) -> int:
        """Offset of the next byte that :meth:`read` returns."""
        return self._start + self._at

    @property
    def end(self) -> int:
        """Offset of the first byte that was not taken from the file yet."""
        return self._start + len(self._buffer)

    def read(self, count: int) -> bytes:
        """The next bytes; fewer only at the end."""
        while len(self._buffer) - self._at < count and self._more(keep=self._at):
            pass
        taken = self._buffer[self._at : self._at + count]
        self._at += len(taken)
        return taken

    def skip(self, count: int) -> None:
        """Pass over bytes."""
        self.go(self.position + count)

    def go(self, offset: int) -> None:
        """Continue at ``offset``; in a stream that has passed it, at the nearest byte still in the window."""
        # A damaged header can name any 64-bit number, which no file can be sought to.
        offset = min(offset, self._size)
        if self.jumps and not self._start <= offset <= self.end:
            self._file.seek(offset)
            self._buffer, self._start, self._at = b"", offset, 0
            return
        while self.end < offset and self._more(keep=len(self._buffer)):
            pass
        self._at = min(max(0, offset - self._start), len(self._buffer))

    def find(self, pattern: bytes, end: int) -> int | None:
        """Go to the next ``pattern`` before ``end`` that starts at a multiple of eight; its offset."""
        while self.position < end:
            at = self._buffer.find(pattern, self._at)
            if at < 0:
                self._at = max(self._at, len(self._buffer) - len(pattern) + 1)
                if self.end >= end or not self._more(keep=self._at):
                    return None
            elif self._start + at >= end:
                return None
            elif (self._start + at) % 8:
                self._at = at + 1
            else:
                self._at = at
                return self.position
        return None

    def read_at(self, offset: int, size: int) -> bytes:
        """Bytes from anywhere in a file that jumps, else from what is remembered of the end."""
        if self.jumps:
            self._file.seek(min(offset, self._size))
            data = self._file.read(min(size, max(0, self._size - offset)))
            self._file.seek(self.end)
            return data
        tail = b"".join(self._tail)
        start = offset - (self.end - len(tail))
        return tail[start : start + size] if start >= 0 else b""

    def _more(self, *, keep: int) -> bool:
        """Take the next chunk; of the window only what stands from ``keep`` on stays."""
        data = self._file.read(min(_CHUNK, max(0, self._size - self.end)))
        if not data:
            return False
        self._buffer, self._start, self._at = (
            self._buffer[keep:] + data,
            self._start + keep,
            max(0, self._at - keep),
        )
        if not self.jumps:
            self._tail.append(data)
            while len(self._tail) > _TAIL // _CHUNK:
                self._tail.popleft()
        return True
