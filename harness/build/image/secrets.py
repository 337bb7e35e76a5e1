"""This machine's settings for a build, as BuildKit secrets: there while a step runs, in no layer.

What is given is what the installers need, written anew: a person's whole pip.conf names folders and
constraints that do not exist inside.
"""

from __future__ import annotations

import json
from pathlib import Path

from harness.build.sources import Sources


def secrets(where_from: Sources, scratch: Path) -> list[str]:
    """Options of ``docker build``; the files for them are written to ``scratch``, for the owner only."""
    given: list[str] = []
    if where_from.certificate and Path(where_from.certificate).is_file():
        given += ["--secret", f"id=ca,src={Path(where_from.certificate).resolve()}"]
    for name, text in (("pip", pip_conf(where_from)), ("uv", uv_toml(where_from))):
        if text:
            path = scratch / name
            path.touch(mode=0o600)
            path.write_text(text, encoding="utf-8")
            given += ["--secret", f"id={name},src={path}"]
    return given


def pip_conf(where_from: Sources) -> str:
    """As pip reads it; empty where this machine uses the default index. Pure."""
    lines = [f"index-url = {where_from.index}"] if where_from.index else []
    if where_from.extra_indexes:
        lines.append(f"extra-index-url = {' '.join(where_from.extra_indexes)}")
    return "[global]\n" + "".join(f"{line}\n" for line in lines) if lines else ""


def uv_toml(where_from: Sources) -> str:
    """As uv reads it; a JSON string is a TOML string. Pure."""
    indexes = [(url, False) for url in where_from.extra_indexes]
    if where_from.index:
        indexes.append((where_from.index, True))
    return "\n".join(
        f"[[index]]\nurl = {json.dumps(url)}\n" + ("default = true\n" if default else "")
        for url, default in indexes
    )
