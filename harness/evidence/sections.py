"""What the report says of configuration and precision, made from the run folder's files."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from harness.evidence import redact
from harness.evidence.model import Run

ORIGINS = "origins.json"
_TABLES = {
    "by_dtype": "Operations by dtype",
    "by_device": "Operations by device",
    "attention": "Attention asked for",
    "attention_kernels": "Attention kernels",
    "autocast": "Autocast",
}
_HANDLED = frozenset({*_TABLES, "operations", "forbidden", "read_from_forbidden", "violations", "processes"})
_OWN_TABLES = frozenset({"schema_version", "active", "patches"})
ABSENT = "not in config.yaml"
_LINE = 160


def configuration(folder: Path) -> list[dict[str, str]]:
    """Each key that somebody set: who, and the value that verl got; empty where no trainer was reached."""
    found = next((p for p in (folder / ORIGINS, *sorted(folder.glob(f"*/{ORIGINS}"))) if p.is_file()), None)
    if found is None:
        return []
    try:
        layers: Mapping[str, list[str]] = json.loads(found.read_text(encoding="utf-8"))
        config = yaml.safe_load(found.with_name("config.yaml").read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return []
    place = str(folder.absolute())
    rows = [
        {"origin": origin, "key": key, "value": _shown(config, key).replace(place, "<run>")}
        for origin, keys in layers.items()
        for key in keys
    ]
    return sorted(rows, key=lambda row: (list(layers).index(row["origin"]), row["key"]))


def _shown(config: Any, key: str) -> str:
    """The page is what people send: a token that is in the configuration is not on it."""
    value = _value(config, key)
    return redact.STAND_IN if redact.secret_name(key) and redact.worth_hiding(value) else value


def _value(config: Any, key: str) -> str:
    for part in key.split("."):
        if not isinstance(config, dict) or part not in config:
            return ABSENT
        config = config[part]
    return config if isinstance(config, str) else json.dumps(config)


def precision(path: Path) -> dict[str, Any]:
    """The ledger as tables: counts with their share, violations, and what else is in the file."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {"others": {}}
    ledger = document if isinstance(document, dict) else {"ledger": document}
    others = {key: value for key, value in ledger.items() if key not in _HANDLED | _OWN_TABLES}
    if "operations" not in ledger:
        return {"others": others}
    return {
        "operations": ledger["operations"],
        "forbidden": ledger.get("forbidden", 0),
        "processes": len(ledger.get("processes", [])),
        "tables": [
            {"title": title, "rows": _shares(ledger[name])}
            for name, title in _TABLES.items()
            if ledger.get(name)
        ],
        "violations": ledger.get("violations", []),
        "others": others,
    }


def _shares(counts: Mapping[str, int]) -> list[dict[str, Any]]:
    total = sum(counts.values()) or 1
    rows = [{"name": name, "count": count, "share": count / total} for name, count in counts.items()]
    return sorted(rows, key=lambda row: (-row["count"], row["name"]))


def verdict(run: Run, *, steps: int = 0) -> str:
    """The run in one sentence; ``steps`` are those that verl logged."""
    passed = [rung.name for rung in run.rungs if rung.status == "passed"]
    last = run.rungs[-1] if run.rungs else None
    if run.status == "passed":
        what = "rehearsed" if run.rehearsal else "passed"
        return (
            f"{len(passed)} rungs {what}, up to {passed[-1]}: {last.verified}"
            if passed and last
            else "passed"
        )
    so_far = f"; {', '.join(passed)} passed before" if passed else ""
    if run.status == "failed" and last is not None:
        first = headline(run.failure.cause) if run.failure and run.failure.cause else "no cause is recorded"
        return f"{last.name} failed: {first}{so_far}"
    place = f"in {last.name}" if last else "before the first rung"
    if run.status == "interrupted":
        after = f"after {run.seconds:.1f} s" + (f" and {steps} steps" if steps else "")
        if run.ended is None:
            return f"no end was written: killed, or still running; last seen {place} {after}{so_far}"
        return f"ended by {run.ended_by or 'Ctrl-C or a signal'} {place} {after}{so_far}"
    return f"{run.status} {place}"


def headline(text: str) -> str:
    """A cause in one line: the first sentence of a long one. Ray writes eight lines of ids as one."""
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    if len(first) <= _LINE:
        return first
    ends = [
        found.start() + 1 for found in re.finditer(r"[.;] ", first[:_LINE]) if found.start() >= _LINE // 4
    ]
    return first[: ends[0]] if ends else f"{first[: _LINE - 1]}…"
