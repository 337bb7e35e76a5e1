"""``report.html``: one page, light, self-contained, made from the files of a run folder alone."""

from __future__ import annotations

import html
import json
import shlex
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from harness.evidence import charts, events, metrics, redact, sections, words
from harness.evidence.files import replace_text
from harness.evidence.model import Run, load

TEMPLATE = "report.html.j2"


def write(run: Path) -> Path:
    """Render ``report.html`` into the run folder and return its path.

    Only ``run.json`` must be there: a run that ended early has no metrics. Raises
    :class:`RecordError` or :class:`DiskFullError`.
    """
    page = run / "report.html"
    replace_text(page, render(run), what="write the report")
    return page


def render(run: Path) -> str:
    """Return the page's text, without what has the form of a secret or a secret's name."""
    # Here and not above: the inside of an environment without Jinja2 still writes and reads records.
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(bytes=_bytes, plain=_plain, headline=sections.headline)
    page = environment.get_template(TEMPLATE).render(_facts(run))
    return redact.without_secrets(page, html.escape(redact.STAND_IN))[0]


def _facts(folder: Path) -> dict[str, Any]:
    run = load(folder)
    logged = folder / "metrics.jsonl"
    steps = metrics.read(logged) if logged.is_file() else []
    happened = events.read(folder / "events.jsonl")
    run = _last_seen(run, happened)
    return {
        "run": run,
        "again": shlex.join(words.whole(run)),
        "plots": [*charts.of_metrics(steps), *charts.of_samples(folder)],
        "memory": charts.of_memory(happened),
        "memory_measure": charts.measure_of_memory(happened),
        "gpus": charts.of_gpus(happened),
        "steps": len(steps),
        "patches": _patches(happened),
        "happened": sorted(Counter(str(event.get("kind")) for event in happened).items()),
        "processes": len({event.get("pid") for event in happened}),
        "precision": sections.precision(folder / "precision.json"),
        "configuration": sections.configuration(folder),
        "verdict": sections.verdict(run, steps=len(steps)),
        "slowest": max((rung.seconds or 0.0 for rung in run.rungs), default=0.0),
    }


def _last_seen(run: Run, happened: Sequence[dict[str, Any]]) -> Run:
    """The run with the time of its last event where no end was written: the record itself is older."""
    times = [str(event["time"]) for event in happened if "time" in event]
    if run.ended is not None or not times:
        return run
    began, last = (datetime.fromisoformat(text) for text in (run.started, max(times)))
    return run.model_copy(update={"seconds": max(run.seconds, (last - began).total_seconds())})


def _patches(happened: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row a patch: its outcomes with the number of processes, and the places where it acted."""
    rows: dict[str, dict[str, Any]] = {}
    for event in happened:
        if event.get("kind") not in {"patch", "patch_acted"}:
            continue
        name = str(event.get("patch"))
        row = rows.setdefault(
            name, {"name": name, "outcomes": {}, "acted": set(), "places": set(), "differences": set()}
        )
        if event["kind"] == "patch":
            row["outcomes"].setdefault(str(event.get("outcome")), set()).add(event.get("pid"))
            row["differences"].update([str(event["difference"])] if event.get("difference") else [])
        else:
            row["acted"].add(event.get("pid"))
            row["places"].add(_place(str(event.get("where"))))
    return [rows[name] for name in sorted(rows)]


def _place(where: str) -> str:
    """Shorten ``/long/site-packages/verl/x.py:12`` to what is the same on every machine."""
    return where.rpartition("site-packages/")[2]


def _bytes(value: int) -> str:
    return f"{value / 2**30:.2f} GiB" if value >= 2**30 else f"{value / 2**20:.0f} MiB"


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)
