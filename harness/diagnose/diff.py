"""``verlock diff RUN RUN``: what differs between two runs, and whether it is one thing.

Two runs that differ in one thing show what that thing does. In two things they show nothing, and the
comparison says so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

from harness.errors import DiagnoseError
from harness.evidence import events, metrics
from harness.evidence.files import explain
from harness.evidence.metrics import Difference
from harness.evidence.model import Failure, Given, Run, load
from harness.evidence.sections import headline

Kind = Literal[
    "setting", "override", "profile", "lock", "harness", "verl", "patch", "host", "file", "variable", "config"
]
ABSENT = "absent"
# A run's own folder and Ray's are new each time; so are ports.
_OWN = "<run>"
# A run's own folder, and what is another number in each process.
_FOLDER = re.compile(r"(?:/[\w.+~-]+)*/\d{8}-\d{6}-\d{3}-[0-9a-f]{4}")
_EACH_TIME = re.compile(r"\(?\bpid[ =]\d+\)?|\b0x[0-9a-f]+|/tmp/[\w.+-]+")
_PARTS: Mapping[str, Kind] = {
    "lock": "lock",
    "harness": "harness",
    "verl_overlay": "verl",
    "profile": "profile",
}
_DERIVED = frozenset({"overrides", "runs"})


@dataclass(frozen=True, kw_only=True)
class Change:
    """One thing that is not the same. ``a`` and ``b`` are its two values."""

    kind: Kind
    key: str
    a: Any
    b: Any


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What is compared of one run, read from its folder."""

    run: Run
    config: Mapping[str, Any]
    patches: Mapping[str, str]
    host: Mapping[str, Any]
    steps: tuple[metrics.Step, ...]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What differs. ``causes`` are the things that somebody changed, ``config`` what verl got of them."""

    causes: tuple[Change, ...]
    config: tuple[Change, ...]
    metrics: Difference | None
    outcome: tuple[Change, ...]

    @property
    def warning(self) -> str | None:
        """Why the two runs cannot say which change did it."""
        if len(self.causes) <= 1:
            return None
        return f"{len(self.causes)} things changed: what differs in the outcome may be of any of them"


def read(folder: Path) -> Facts:
    """Read a run folder. Raises :class:`RecordError` or :class:`DiagnoseError` for what cannot be read."""
    run = load(folder)
    found, measured = (_highest(folder, name) for name in ("config.yaml", "metrics.jsonl"))
    happened = [e for e in events.read(folder / "events.jsonl") if e.get("kind") == "host"]
    skipped = {"time", "pid", "role", "rank", "kind"}
    return Facts(
        run=run,
        config=dict(flat(_config(found, folder))) if found else {},
        patches=_patches(folder / "precision.json"),
        host={k: v for k, v in happened[-1].items() if k not in skipped} if happened else {},
        steps=tuple(metrics.read(measured)) if measured else (),
    )


def _highest(folder: Path, name: str) -> Path | None:
    """The run's own file, or that of a rung below which stopped earlier."""
    return next((p for p in (folder / name, *sorted(folder.glob(f"*/{name}"))) if p.is_file()), None)


def _config(path: Path, folder: Path) -> Any:
    try:
        text = path.read_text(encoding="utf-8")
        return yaml.safe_load(text.replace(str(folder.resolve()), _OWN).replace(str(folder.absolute()), _OWN))
    except OSError as error:
        raise explain(error, path, what="read the configuration") from error
    except yaml.YAMLError as error:
        raise DiagnoseError("the configuration is not YAML", where=str(path), why=str(error)) from error


def _patches(path: Path) -> dict[str, str]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        return {name: ", ".join(sorted(entry["outcomes"])) for name, entry in document["patches"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}  # A run that ended early has none.


def flat(node: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Leaves by dotted key; a list is a leaf, as Hydra overrides it whole."""
    if isinstance(node, dict) and node:
        for name, value in node.items():
            yield from flat(value, f"{key}.{name}" if key else str(name))
    else:
        yield key, node


def compare(a: Facts, b: Facts) -> Comparison:
    """Pure. A changed setting explains the configuration; without one each changed key is a cause itself."""
    causes = [
        *_changes("setting", _settings(a.run), _settings(b.run)),
        *_changes("override", _words(a.run), _words(b.run)),
        *(
            Change(kind=kind, key=key, a=_short(a.run, key), b=_short(b.run, key))
            for key, kind in _PARTS.items()
            if _part(a.run, key) != _part(b.run, key)
        ),
        *_changes("host", a.host, b.host),
        *(_given(a.run.given, b.run.given)),
    ]
    config = tuple(_changes("config", a.config, b.config)) if a.config and b.config else ()
    if not causes:
        causes = [*config, *_changes("patch", *_common(a.patches, b.patches))]
    return Comparison(
        causes=tuple(causes),
        config=config,
        metrics=metrics.difference(a.steps, b.steps),
        outcome=(
            *_changes("config", _outcome(a.run), _outcome(b.run)),
            *_changes("config", *_causes(a.run.failure, b.run.failure)),
        ),
    )


def _given(a: Given | None, b: Given | None) -> Iterator[Change]:
    """Files of the user that were edited between the two, and variables that steer verl."""
    if a is None or b is None:
        return
    both = a.files.keys() & b.files.keys()
    yield from _changes("file", {n: a.files[n][:12] for n in both}, {n: b.files[n][:12] for n in both})
    yield from _changes("variable", a.variables, b.variables)


def _common(a: Mapping[str, str], b: Mapping[str, str]) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Only the patches that both have: how many are met depends on how far a run came."""
    both = a.keys() & b.keys()
    return {name: a[name] for name in both}, {name: b[name] for name in both}


def _changes(kind: Kind, a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[Change]:
    for key in sorted(a.keys() | b.keys()):
        ours, theirs = a.get(key, ABSENT), b.get(key, ABSENT)
        # An option that an older verlock did not have was not set either.
        if ours != theirs and {str(ours), str(theirs)} != {ABSENT, "None"}:
            yield Change(kind=kind, key=key, a=ours, b=theirs)


def _settings(run: Run) -> dict[str, Any]:
    return {key: value for key, value in run.settings.items() if key not in _DERIVED}


def _words(run: Run) -> dict[str, str]:
    given = run.settings.get("overrides") or []
    words = [str(word).partition("=") for word in given] if isinstance(given, list) else []
    return {key.lstrip("+~"): value for key, _, value in words}


def _part(run: Run, key: str) -> Any:
    parts = run.fingerprint.get("parts")
    return parts.get(key) if isinstance(parts, dict) else None


def _short(run: Run, key: str) -> str:
    return str(_part(run, key) or ABSENT)[:12]


def _outcome(run: Run) -> dict[str, Any]:
    rungs = {f"rung {rung.name}": rung.status for rung in run.rungs}
    failure = run.failure
    return {
        "status": run.status,
        "exit_code": run.exit_code,
        "failure": failure.signature if failure else None,
        **rungs,
    }


def _causes(a: Failure | None, b: Failure | None) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """One signature has many causes: another column, another line. Under two it is no news."""
    if a is None or b is None or a.signature != b.signature:
        return {}, {}
    one, other = (headline(_EACH_TIME.sub("", _FOLDER.sub(_OWN, failure.cause))) for failure in (a, b))
    return {"cause": one}, {"cause": other}
