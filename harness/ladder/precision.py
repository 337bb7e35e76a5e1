"""``precision.json``: patches and where they acted, and what the processes' ledgers add up to."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from harness.evidence import events
from harness.evidence.files import replace_text

LEDGERS = "ledger"
_ADDED = ("by_dtype", "by_device", "attention", "attention_kernels", "autocast")
_SHOWN = ("violation", "name", "what", "reason", "where", "pid", "role", "stack")


def collect(folder: Path) -> dict[str, Any]:
    """The whole file: patches by name and violations from the events, counts from the ledgers."""
    patches: dict[str, dict[str, Any]] = {}
    active, broken = [], []
    for event in events.read(folder / "events.jsonl"):
        if event["kind"] == "activated":
            active.append({"pid": event["pid"], "role": event["role"], "device": event["device"]})
        elif event["kind"] in {"patch", "patch_acted"}:
            entry = patches.setdefault(event["patch"], {"outcomes": {}, "acted": []})
            if event["kind"] == "patch":
                entry["outcomes"][event["outcome"]] = entry["outcomes"].get(event["outcome"], 0) + 1
            else:
                entry["acted"].append({"pid": event["pid"], "role": event["role"], "where": event["where"]})
        elif event["kind"] == "violation":
            broken.append({key: event.get(key) for key in _SHOWN})
    document: dict[str, Any] = {"schema_version": 1, "active": active, "patches": patches}
    books = ledgers(folder)
    if books or broken:
        document |= total(books) | {"violations": broken, "processes": books}
    return document


def ledgers(folder: Path) -> list[dict[str, Any]]:
    """What each process wrote, the busiest first; one that was being written is left out by its name."""
    books = [json.loads(file.read_text(encoding="utf-8")) for file in (folder / LEDGERS).glob("[0-9]*.json")]
    return sorted(books, key=lambda book: -int(book["operations"]))


def total(books: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The ledgers of all processes as one."""
    added: dict[str, Any] = {
        name: sum(int(book[name]) for book in books)
        for name in ("operations", "forbidden", "read_from_forbidden")
    }
    for name in _ADDED:
        counter: Counter[str] = Counter()
        for book in books:
            counter.update(book[name])
        added[name] = dict(sorted(counter.items()))
    return added


def uncounted(folder: Path, happened: Iterable[dict[str, Any]]) -> list[str]:
    """The processes that were active and left no ledger, by role and pid."""
    written = {int(book["pid"]) for book in ledgers(folder)}
    roles = {event["pid"]: event["role"] for event in happened if event["kind"] == "activated"}
    return [f"{role} (pid {pid})" for pid, role in roles.items() if pid not in written]


def write_precision(folder: Path) -> dict[str, Any]:
    """Write the file; returns what it says."""
    document = collect(folder)
    text = json.dumps(document, indent=2) + "\n"
    replace_text(folder / "precision.json", text, what="write precision.json")
    return document
