"""``precision.json``: which patches were applied, where they acted, and in which process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from harness.evidence import events
from harness.evidence.files import replace_text


def collect(folder: Path) -> dict[str, Any]:
    """Patches by name, from the events of all processes."""
    path = folder / "events.jsonl"
    patches: dict[str, dict[str, Any]] = {}
    active = []
    for event in events.read(path) if path.exists() else []:
        if event["kind"] == "activated":
            active.append({"pid": event["pid"], "role": event["role"], "device": event["device"]})
        elif event["kind"] in {"patch", "patch_acted"}:
            entry = patches.setdefault(event["patch"], {"outcomes": {}, "acted": []})
            if event["kind"] == "patch":
                entry["outcomes"][event["outcome"]] = entry["outcomes"].get(event["outcome"], 0) + 1
            else:
                entry["acted"].append({"pid": event["pid"], "role": event["role"], "where": event["where"]})
    return {"schema_version": 1, "active": active, "patches": patches}


def write_precision(folder: Path) -> None:
    """Write the file from the run's events."""
    text = json.dumps(collect(folder), indent=2) + "\n"
    replace_text(folder / "precision.json", text, what="write precision.json")
