"""Fetching when servers misbehave: what is tried again, what is not, and what is said."""

from __future__ import annotations

import io
import zipfile
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.build import sources
from harness.build.ranges import RangeFile
from harness.build.web import Web
from harness.errors import LockError


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.build.web.time.sleep", lambda seconds: None)


def put(server: Any, data: bytes) -> str:
    (server.folder / "a.bin").write_bytes(data)
    return f"{server.url}/files/a.bin"


@pytest.mark.parametrize("fault", ["503", "cut", "hang up"])
def test_two_faults_are_overcome_and_lasting_ones_told(server: Any, fault: str) -> None:
    address = put(server, b"content")
    with Web(sources.here()) as web:
        server.faults = [fault] * 2
        assert web.get(address, {}).body == b"content"
        server.faults = [fault] * 9
        with pytest.raises(LockError, match="cannot read"):
            web.get(address, {})


def test_a_refusal_is_not_asked_again(server: Any) -> None:
    with Web(sources.here()) as web, pytest.raises(LockError, match="404"):
        web.get(f"{server.url}/files/absent", {})
    assert len(server.asked) == 1


def test_redirects_end(server: Any) -> None:
    address = put(server, b"content")
    server.faults = ["loop"] * 20
    with Web(sources.here()) as web, pytest.raises(LockError, match="redirects"):
        web.get(address, {})


def test_a_connection_that_the_server_closed_while_idle(server: Any) -> None:
    address = put(server, b"content")
    with Web(sources.here()) as web:
        assert web.get(address, {}).body == b"content"
        server.faults = ["hang up"]
        assert web.get(address, {}).body == b"content"


@pytest.mark.parametrize("address", ["file:///etc/passwd", "ftp://x/y", "https://", "nothing"])
def test_only_the_web_is_read(address: str) -> None:
    with Web(sources.here()) as web, pytest.raises(LockError, match="not a web address"):
        web.get(address, {})


def test_a_proxy_is_used(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    put(server, b"content")
    monkeypatch.setenv("http_proxy", server.url)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    with Web(sources.here()) as web, pytest.raises(LockError, match="404"):
        web.get("http://elsewhere.invalid/files/a.bin", {})
    assert server.asked == ["http://elsewhere.invalid/files/a.bin"]


@pytest.mark.parametrize("size", [1, 65535, 65536, 65537, 900_000])
def test_a_range_file_reads_as_a_file(server: Any, size: int) -> None:
    data = (bytes(range(251)) * (size // 251 + 1))[:size]
    with Web(sources.here()) as web:
        remote = io.BufferedReader(RangeFile(web, put(server, data)), 1 << 16)
        assert remote.read() == data
        local = io.BytesIO(data)

        @settings(max_examples=15, deadline=None)
        @given(st.lists(st.tuples(st.integers(0, size + 9), st.integers(0, 70_000)), max_size=4))
        def same(steps: list[tuple[int, int]]) -> None:
            for offset, count in steps:
                remote.seek(offset)
                local.seek(offset)
                assert remote.read(count) == local.read(count)

        same()


def test_a_small_file_from_a_server_without_ranges(server: Any) -> None:
    server.ranges = False
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("a", "b")
    with Web(sources.here()) as web:
        address = put(server, packed.getvalue())
        with zipfile.ZipFile(io.BufferedReader(RangeFile(web, address), 1 << 16)) as archive:
            assert archive.read("a") == b"b"
