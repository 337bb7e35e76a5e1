"""What the climb tells of ``--break`` while it runs: a worker's own words reach no terminal."""

from __future__ import annotations

import importlib.util
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness.adapt.stops import roles
from harness.adapt.stops.place import Place, Tool, find
from harness.errors import ToolMissingError
from harness.evidence import events
from harness.ladder.context import Context

_TICK_SECONDS = 0.3
# Agent loops and rollout servers of ours run as actors too.
_OURS = (Path(__file__).parent.parent / "adapt",)
_KINDS = frozenset({"break", "break_late", "debugger"})


def place(text: str | None, role: str | None, *, pdb: bool, checkout: Path | None) -> Place | None:
    """Where to stop, from the words of the command line; ``role`` is ``--debugpy``'s.

    None also where that cannot be told here: on the host, which has no verl, the environment that is entered
    looks again. A file of the user's is judged at once.

    Raises:
        OverrideError: there is no such place, or no such role.
    """
    wanted = text or role
    if wanted is None:
        return None
    tool: Tool = "debugpy" if role is not None else "pdb" if pdb else "dump"
    whole = f"{text}@{role}" if text and role and "@" not in text else wanted
    verl = _verl(checkout)
    if verl is None and not _own_file(wanted):
        return None
    found = find(whole, tool, verl or Path("verl"), here=Path.cwd())
    if verl is not None:
        roles.known(found.role, [verl, *_OURS, Path(found.file)])
    return found


def usable(chosen: Place | None) -> None:
    """Whether the debugger that waits there is in this environment, the one that the climb runs in.

    Raises:
        ToolMissingError: debugpy is not installed here.
    """
    if chosen is not None and chosen.tool == "debugpy" and importlib.util.find_spec("debugpy") is None:
        raise ToolMissingError(
            "debugpy is not in this environment",
            where=sys.prefix,
            why="it is among the locked development tools, which an image and a GPU profile's lock have not",
            todo="use --break FILE:LINE --pdb here, or --debugpy with --profile cpu and without --image",
        )


def _own_file(text: str) -> bool:
    return Path(text.partition("@")[0].rpartition(":")[0]).expanduser().is_file()


def _verl(checkout: Path | None) -> Path | None:
    """The package's folder; none on the host."""
    if checkout is not None:
        return checkout / "verl"
    spec = importlib.util.find_spec("verl")
    return Path(str(spec.origin)).parent if spec and spec.origin else None


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
