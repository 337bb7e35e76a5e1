"""What the climb tells of ``--break`` while it runs: a worker's own words reach no terminal."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness.adapt.stops.place import Place, Tool, find
from harness.errors import ToolMissingError
from harness.evidence import events
from harness.ladder.context import Context

_TICK_SECONDS = 0.3
_KINDS = frozenset({"break", "break_late", "debugger"})


def place(text: str | None, role: str | None, *, pdb: bool, checkout: Path | None) -> Place | None:
    """Where to stop, from the words of the command line; ``role`` is ``--debugpy``'s.

    Raises:
        OverrideError: there is no such place.
        ToolMissingError: debugpy is not installed here.
    """
    if role is not None and importlib.util.find_spec("debugpy") is None:
        raise ToolMissingError(
            "debugpy is not in this environment",
            why="it is among the locked development tools, which an image and a GPU profile's lock have not",
            todo="use --pdb, or the cpu profile without --image",
        )
    wanted = text or role
    if wanted is None:
        return None
    tool: Tool = "debugpy" if role is not None else "pdb" if pdb else "dump"
    whole = f"{text}@{role}" if text and role and "@" not in text else wanted
    return find(whole, tool, _verl(checkout), here=Path.cwd())


def _verl(checkout: Path | None) -> Path:
    if checkout is not None:
        return checkout / "verl"
    spec = importlib.util.find_spec("verl")
    return Path(str(spec.origin)).parent if spec else Path("verl")


@contextmanager
def told(context: Context) -> Iterator[None]:
    """Say on the terminal when a process stops; at the end say where none did."""
    wanted = context.options.stop
    if wanted is None:
        yield
        return
    ended = threading.Event()
    seen: list[dict[str, Any]] = []
    watcher = threading.Thread(target=_watch, args=(context, ended, seen), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join(timeout=5)
        if not any(event["kind"] != "break_late" for event in seen):
            context.output.line(f"no process came to {wanted}", style="yellow")


def _watch(context: Context, ended: threading.Event, seen: list[dict[str, Any]]) -> None:
    while True:
        last = ended.wait(_TICK_SECONDS)
        found = [event for event in events.read(context.folder / "events.jsonl") if event["kind"] in _KINDS]
        for event in found[len(seen) :]:
            context.output.line(line(event, context.folder), style="bold")
        seen[:] = found
        if last:
            return


def line(event: Mapping[str, Any], folder: Path) -> str:
    """One event for people."""
    who = f"{event['role']} (pid {event['pid']}{', rank ' + event['rank'] if 'rank' in event else ''})"
    match event["kind"]:
        case "break":
            return f"  {who} came to {event['at']} in {event['function']}: {folder / event['file']}"
        case "debugger":
            return f"  {who} waits at {event['at']} for {event['tool']}: {event['connect']}"
        case _:
            return f"  {who} had loaded {event['module']} before a place could be set in it"
