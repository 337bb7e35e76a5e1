"""``verlock fingerprint``: everything checked, the numbers, and a comparison with those of another place."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from harness.errors import EnvironmentDiffersError, Problem, RecordError
from harness.evidence.files import explain
from harness.fingerprint import compare
from harness.fingerprint.guard import here
from harness.fingerprint.identity import fingerprint
from harness.fingerprint.verify import verify
from harness.profiles.load import load

_SHA = re.compile(r"(?:sha256:)?([0-9a-f]{64})")


def report(name: str, expect: str | None) -> dict[str, Any]:
    """Check this node; returns its numbers, and the variable that makes each process of a job check itself.

    Raises :class:`EnvironmentDiffersError` with all that differs.
    """
    profile = load(name)
    # Before the hashing: a wrong word is told at once.
    wanted = _expected(expect) if expect else None
    checked = verify(profile, overlay=False)
    found = {"profile": profile.name, **fingerprint(profile, None), "contents": checked.contents}
    problems = list(differences(wanted, found)) if wanted else []
    if problems:
        raise EnvironmentDiffersError(*problems)
    counts = {key: value for key, value in asdict(checked).items() if key not in {"contents", "states"}}
    return {**found, "checked": {**counts, "line": checked.line()}, "variables": here(profile).variables()}


def differences(wanted: str | Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[Problem]:
    """What is not as wanted: by one number, or part by part where the parts are known. Pure."""
    if isinstance(wanted, str):
        here = {
            name: str(found[name]).removeprefix("sha256:")
            for name in ("environment", "image")
            if name in found
        }
        if wanted not in here.values():
            yield Problem(
                what=f"this is not the environment or image {wanted}",
                why="; ".join(f"the {name} here is {value}" for name, value in here.items()),
                todo="use the image with that fingerprint; `--expect run.json` says which part differs",
            )
        return
    yield from compare.parts(wanted["parts"], found["parts"])
    if "contents" in wanted:
        yield from compare.contents(wanted["contents"], found["contents"])
    if "image" in wanted and wanted["image"] != found.get("image"):
        yield Problem(
            what="this is not the image that was expected",
            why=f"expected {wanted['image']}, found {found.get('image', 'no image')}",
            todo="take the image by its digest",
        )


def _expected(text: str) -> str | Mapping[str, Any]:
    match = _SHA.fullmatch(text)
    if match:
        return match[1]
    path = Path(text).expanduser()
    path = path / "run.json" if path.is_dir() else path
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        found = document.get("fingerprint", document)
        if isinstance(found["parts"], dict):
            return dict(found)
    except OSError as error:
        raise explain(error, path, what="read the expected fingerprint") from error
    except (ValueError, AttributeError, KeyError, TypeError):
        pass
    raise RecordError(
        "there is no fingerprint in this file",
        where=str(path),
        todo="give a SHA-256, a run folder, or a file with `fingerprint` and its `parts`",
    )
