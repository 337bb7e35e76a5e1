"""Which patches fit a verl that is not installed: its source is read, never imported.

Run as ``python -m harness.adapt.fits FOLDER VERSION``, where FOLDER holds the package ``verl``; prints one
JSON list. A process of its own, so that the host side, which has no torch, need not import this room.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from packaging.specifiers import SpecifierSet

from harness.adapt.patch import Patch


def evaluate(folder: Path, version: str, patches: tuple[Patch, ...]) -> list[dict[str, Any]]:
    """One entry a patch: its fit, the difference if it is unfit, and whether it was made for this version."""
    found: list[dict[str, Any]] = []
    for patch in patches:
        if not patch.module.startswith("verl."):
            continue  # it rests on another package
        if patch.superfluous(version):
            continue
        source = _source(folder, patch.module)
        verdict = patch.anchor.check_source(source, patch.module)
        found.append(
            {
                "patch": patch.name,
                "fit": verdict.fit,
                "difference": verdict.difference,
                "versions": patch.verl,
                "in_versions": SpecifierSet(patch.verl, prereleases=True).contains(version),
            }
        )
    return found


def _source(folder: Path, module: str) -> str:
    """A module's source; empty where the module is gone."""
    place = folder.joinpath(*module.split("."))
    for path in (place.with_suffix(".py"), place / "__init__.py"):
        if path.is_file():
            return path.read_text(encoding="utf-8")
    return ""


if __name__ == "__main__":
    from harness.adapt.patches import PATCHES

    sys.stdout.write(json.dumps(evaluate(Path(sys.argv[1]), sys.argv[2], PATCHES)) + "\n")
