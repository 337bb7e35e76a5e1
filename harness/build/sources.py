"""Where wheels come from on this machine.

That is the machine's business, not the lock's: a mirror, a folder of wheels, a certificate. People
configure pip; uv reads none of pip's settings (PIP_FIND_LINKS, PIP_INDEX_URL, pip.conf), so they are
translated here. What is set for uv itself wins.
"""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlparse

# pip's names, as variables and as keys of its configuration files.
SETTINGS = {
    "find_links": "find-links",
    "index": "index-url",
    "extra": "extra-index-url",
    "certificate": "cert",
}


@dataclass(frozen=True, kw_only=True)
class Sources:
    """Indexes and folders that uv is pointed at; empty means uv's own defaults."""

    find_links: tuple[str, ...] = ()
    index: str | None = None
    extra_indexes: tuple[str, ...] = ()
    certificate: str | None = None

    def environment(self) -> dict[str, str]:
        """The same as variables that uv reads."""
        given = {
            "UV_FIND_LINKS": ",".join(self.find_links),
            "UV_DEFAULT_INDEX": self.index or "",
            "UV_INDEX": " ".join(self.extra_indexes),
            "SSL_CERT_FILE": self.certificate or "",
        }
        return {name: value for name, value in given.items() if value}

    def offers(self, package: str, version: str) -> bool:
        """Whether a folder on this machine holds a wheel of exactly this version."""
        prefix = f"{package.replace('-', '_')}-{version}-".lower()
        return any(
            unquote(file.name).lower().startswith(prefix) and file.suffix == ".whl"
            for folder in self.folders()
            for file in folder.iterdir()
        )

    def folders(self) -> list[Path]:
        """The entries of ``find_links`` that are folders here."""
        paths = (
            Path(unquote(urlparse(entry).path)) if entry.startswith("file:") else Path(entry)
            for entry in self.find_links
        )
        return [path for path in paths if path.is_dir()]


def discover(environ: Mapping[str, str], pip: Mapping[str, str]) -> Sources:
    """What the variables say, and where they are silent, what pip's configuration says. Pure."""

    def setting(kind: str, uv: str) -> str:
        name = SETTINGS[kind]
        return environ.get(uv) or environ.get(f"PIP_{name.upper().replace('-', '_')}") or pip.get(name, "")

    folders = (
        environ.get("UV_FIND_LINKS", "").split(",")
        if environ.get("UV_FIND_LINKS")
        else setting("find_links", "").split()
    )
    # An extra index of pip's is one more place to look; to uv it is the first place, and a package that it
    # has is taken from nowhere else. A folder index (file://) holds a few old packages: left out.
    extra = [
        entry for entry in setting("extra", "UV_INDEX").split() if entry.startswith(("http://", "https://"))
    ]
    return Sources(
        find_links=tuple(entry for entry in folders if entry),
        index=setting("index", "UV_DEFAULT_INDEX") or environ.get("UV_INDEX_URL") or None,
        extra_indexes=tuple(extra),
        certificate=setting("certificate", "SSL_CERT_FILE") or None,
    )


def here() -> Sources:
    """The sources of this machine."""
    return discover(os.environ, _pip_configuration())


def parse_pip_configuration(listing: str) -> dict[str, str]:
    """What ``pip config list`` prints (``global.index-url='...'``); for one command beats for all."""
    found: dict[str, tuple[int, str]] = {}
    for line in listing.splitlines():
        name, _, literal = line.partition("=")
        section, _, key = name.rpartition(".")
        if section not in ("global", "install", "download") or key not in SETTINGS.values():
            continue
        try:
            value = str(ast.literal_eval(literal))
        except (ValueError, SyntaxError):
            continue
        rank = int(section != "global")
        if rank >= found.get(key, (0, ""))[0]:
            found[key] = (rank, value)
    return {key: value for key, (_, value) in found.items()}


def _pip_configuration() -> dict[str, str]:
    """pip's configuration files, read by pip itself; none where there is no pip."""
    programs = [
        [sys.executable, "-m", "pip"],
        *([path] for name in ("pip", "pip3") if (path := shutil.which(name))),
    ]
    for program in programs:
        done = subprocess.run([*program, "config", "list"], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return parse_pip_configuration(done.stdout)
    return {}
