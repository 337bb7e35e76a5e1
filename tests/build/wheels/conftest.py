"""A writer of small CUDA libraries and wheels, and an index that serves them with and without ranges."""

from __future__ import annotations

import functools
import hashlib
import http.server
import json
import re
import struct
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

# An entry: kind (1 PTX, 2 SASS, 8 what only a linker reads), architecture, suffix.
Entry = tuple[int, int, str]
FLAGS = {"": 0x11, "a": 0x11 | 1 << 20, "f": 0x11 | 1 << 24 | 1 << 21}


def entry(kind: int, architecture: int, suffix: str = "", payload: bytes = b"\x50\xed\x55\xba" * 16) -> bytes:
    """The payload holds the magic on purpose: a reader that searches inside payloads counts too much."""
    head = struct.pack(
        "<HHIQIIHHIIIQQQ", kind, 0x101, 64, len(payload), 0, 0, 0, 7, architecture, 0, 0, FLAGS[suffix], 0, 0
    )
    return head + payload


def container(*entries: Entry) -> bytes:
    body = b"".join(entry(*one) for one in entries)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def library(sections: Mapping[str, bytes], *, table: bool = True) -> bytes:
    """A shared library of such sections; all loaded as data but ``.text``."""
    names = b"\0"
    rows = [bytes(64)]
    body = b""
    for name, content in {**sections, ".shstrtab": b""}.items():
        start = len(names)
        names += name.encode() + b"\0"
        body += bytes(-len(body) % 16)
        data = names if name == ".shstrtab" else content
        flags = 6 if name == ".text" else 0 if name == ".shstrtab" else 2
        kind = 3 if name == ".shstrtab" else 1
        rows.append(struct.pack("<IIQQQQIIQQ", start, kind, flags, 0, 64 + len(body), len(data), 0, 0, 8, 0))
        body += data
    body += bytes(-len(body) % 8)
    offset, count = (64 + len(body), len(rows)) if table else (0, 0)
    head = b"\x7fELF\2\1\1" + bytes(9)
    head += struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 0, offset, 0, 64, 0, 0, 64, count, count and count - 1)
    return head + body + (b"".join(rows) if table else b"")


def cuda_library(*containers: Sequence[Entry], filler: int = 20_000) -> bytes:
    fatbin = b"".join(container(*one) for one in containers)
    return library({".text": bytes(filler), ".nv_fatbin": fatbin})


def wheel(
    folder: Path, name: str, version: str, members: Mapping[str, bytes], *, deflated: bool = True
) -> Path:
    info = f"{name}-{version}.dist-info"
    files = {**members, f"{info}/METADATA": f"Name: {name}\nVersion: {version}\n".encode()}
    files[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in files).encode()
    path = folder / f"{name}-{version}-cp311-cp311-manylinux_2_28_x86_64.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED if deflated else zipfile.ZIP_STORED) as archive:
        for file, content in files.items():
            archive.writestr(file, content)
    return path


@dataclass
class Make:
    """What the tests build with."""

    container: Callable[..., bytes] = container
    library: Callable[..., bytes] = library
    cuda_library: Callable[..., bytes] = cuda_library
    wheel: Callable[..., Path] = wheel


@pytest.fixture(scope="session")
def make() -> Make:
    return Make()


@dataclass
class Server:
    """An index over a folder of files."""

    folder: Path
    url: str
    html: bool = False
    ranges: bool = True
    login: str | None = None
    faults: list[str] = field(default_factory=list)
    """What goes wrong with the next requests: ``503``, ``cut``, ``hang up``, ``loop``."""
    asked: list[str] = field(default_factory=list)


class _Quiet(http.server.ThreadingHTTPServer):
    def handle_error(self, *arguments: object) -> None:
        """A client that hangs up is what some tests are about."""


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def __init__(self, server: Server, *arguments: object) -> None:
        self.index = server
        super().__init__(*arguments)  # type: ignore[arg-type]

    def log_message(self, *arguments: object) -> None:
        """Silence."""

    def do_GET(self) -> None:
        self.index.asked.append(self.path)
        fault = self.index.faults.pop(0) if self.index.faults else ""
        if fault == "503":
            self._send(503, b"busy", "text/plain")
        elif fault == "loop":
            self._send(302, b"", "text/plain", Location=self.path)
        elif fault == "hang up":
            self.close_connection = True
        elif fault == "cut":
            self._send(200, b"half", "text/plain", **{"Content-Length": "8"})
            self.close_connection = True
        elif self.index.login and self.headers.get("Authorization") != self.index.login:
            self._send(401, b"who are you", "text/plain")
        elif match := re.fullmatch(r"/simple/([^/]+)/", self.path):
            self._page(match[1])
        elif self.path.startswith("/moved/"):
            self._send(302, b"", "text/plain", Location="/files/" + self.path.removeprefix("/moved/"))
        else:
            self._file(self.index.folder / self.path.removeprefix("/files/"))

    def _page(self, package: str) -> None:
        files = sorted(path for path in self.index.folder.iterdir() if path.name.split("-")[0] == package)
        if not files:
            self._send(404, b"none", "text/plain")
        elif self.index.html:
            links = "".join(
                f'<a href="../../moved/{path.name}#sha256={_sha256(path)}">{path.name}</a>\n'
                for path in files
            )
            self._send(200, links.encode(), "text/html")
        else:
            entries = [
                {
                    "filename": path.name,
                    "url": f"../../files/{path.name}",
                    "hashes": {"sha256": _sha256(path)},
                }
                for path in files
            ]
            body = json.dumps({"files": entries}).encode()
            self._send(200, body, "application/vnd.pypi.simple.v1+json")

    def _file(self, path: Path) -> None:
        if not path.is_file():
            self._send(404, b"none", "text/plain")
            return
        data = path.read_bytes()
        match = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        if match is None or not self.index.ranges:
            self._send(200, data, "application/octet-stream")
            return
        start = int(match[1]) if match[1] else max(0, len(data) - int(match[2]))
        end = min(len(data), int(match[2]) + 1) if match[1] and match[2] else len(data)
        span = f"bytes {start}-{end - 1}/{len(data)}"
        self._send(206, data[start:end], "application/octet-stream", **{"Content-Range": span})

    def _send(self, status: int, body: bytes, kind: str, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """An index on this machine, which the environment names as pip's."""
    folder = tmp_path / "index"
    folder.mkdir()
    index = Server(folder=folder, url="")
    httpd = _Quiet(("127.0.0.1", 0), functools.partial(_Handler, index))
    index.url = f"http://127.0.0.1:{httpd.server_port}"
    for name in ("UV_DEFAULT_INDEX", "UV_INDEX", "UV_FIND_LINKS", "PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("UV_DEFAULT_INDEX", f"{index.url}/simple")
    monkeypatch.setenv("UV_FIND_LINKS", str(tmp_path / "nowhere"))
    # pip is asked for its configuration in a process of its own, half a second each time.
    monkeypatch.setattr("harness.build.sources._pip_configuration", dict)
    thread = threading.Thread(target=httpd.serve_forever, daemon=True)
    thread.start()
    yield index
    httpd.shutdown()
    httpd.server_close()
    thread.join()
