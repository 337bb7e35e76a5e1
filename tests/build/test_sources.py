"""pip's settings, as uv is told them."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.build.sources import Sources, discover, parse_pip_configuration


@pytest.mark.parametrize(
    ("environ", "pip", "expected"),
    [
        ({}, {}, {}),
        ({"PIP_FIND_LINKS": "/a /b"}, {}, {"UV_FIND_LINKS": "/a,/b"}),
        ({"PIP_FIND_LINKS": "/a", "UV_FIND_LINKS": "/c,/d"}, {}, {"UV_FIND_LINKS": "/c,/d"}),
        ({}, {"find-links": "/a\n/b"}, {"UV_FIND_LINKS": "/a,/b"}),
        ({"PIP_INDEX_URL": "https://m/simple"}, {"index-url": "x"}, {"UV_DEFAULT_INDEX": "https://m/simple"}),
        ({"UV_INDEX_URL": "https://old/simple"}, {}, {"UV_DEFAULT_INDEX": "https://old/simple"}),
        ({"PIP_EXTRA_INDEX_URL": "https://e/simple file:///few"}, {}, {"UV_INDEX": "https://e/simple"}),
        ({}, {"extra-index-url": "file:///few"}, {}),
        ({"PIP_CERT": "/ca.pem"}, {}, {"SSL_CERT_FILE": "/ca.pem"}),
        ({"PIP_CERT": "/ca.pem", "SSL_CERT_FILE": "/own.pem"}, {}, {"SSL_CERT_FILE": "/own.pem"}),
        ({"PIP_CONSTRAINT": "/constraints.txt"}, {"constraint": "/constraints.txt"}, {}),
    ],
)
def test_discover(environ: dict[str, str], pip: dict[str, str], expected: dict[str, str]) -> None:
    assert discover(environ, pip).environment() == expected


def test_pip_configuration_as_pip_prints_it() -> None:
    listing = """\
:env:.find-links='/env'
global.index-url='https://mirror/simple'
global.find-links='/a\\n/b'
install.find-links='/c'
list.format='columns'
global.timeout='60'
"""
    assert parse_pip_configuration(listing) == {"index-url": "https://mirror/simple", "find-links": "/c"}


@pytest.mark.parametrize(
    ("file", "offered"),
    [
        ("torch-2.13.0+cpu-cp311-cp311-linux_x86_64.whl", True),
        ("torch-2.13.0%2Bcpu-cp311-cp311-linux_x86_64.whl", True),
        ("torch-2.13.0-cp311-cp311-linux_x86_64.whl", False),
        ("torch-2.13.0+cpu.tar.gz", False),
    ],
)
def test_offers(tmp_path: Path, file: str, offered: bool) -> None:
    (tmp_path / file).touch()
    for entry in (str(tmp_path), tmp_path.as_uri()):
        assert Sources(find_links=(entry, "/nowhere", "https://x/")).offers("torch", "2.13.0+cpu") == offered
