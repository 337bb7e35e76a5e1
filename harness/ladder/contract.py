"""The contract as the climb sees it: whether it is held, whether it was broken, and what was counted."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from harness.adapt.contract.terms import Mode
from harness.adapt.contract.violation import EVENT, error
from harness.errors import ContractError, RungFailedError
from harness.ladder.place import Place
from harness.profiles.model import Profile

_COMPILES = "use_torch_compile"


def mode(profile: Profile, place: Place, *, enforce: bool, ledger: bool) -> Mode | None:
    """Enforced or recorded as asked. By itself: enforced in a rehearsal and on a GPU, off in a plain CPU run.

    A plain CPU run keeps its speed: counted, a step of the tiny model takes 1.8 times as long. Where
    torch.compile is part of the policy the ledger is off too: a dispatch mode keeps it from compiling.
    """
    if ledger:
        return "record"
    if enforce or place.rehearsal:
        return "enforce"
    compiles = any(value is True for key, value in profile.overrides().items() if key.endswith(_COMPILES))
    return "enforce" if place.device == "cuda" and not compiles else None


def settle() -> None:
    """Write this process's own ledger as it is now; importing it for that would import torch."""
    module = sys.modules.get("harness.adapt.contract.ledger")
    book = module.current() if module else None
    if book is not None:
        book.flush()


def broken(happened: Sequence[Mapping[str, Any]]) -> ContractError | None:
    """The first violation that was to end the run, in whichever process, even if its error was swallowed."""
    for event in happened:
        if event["kind"] == EVENT and event.get("mode") == "enforce":
            return error(event["what"], event.get("where"), event["reason"], event["profile"])
    return None


def prove_counted(missing: Sequence[str]) -> None:
    """Raise for processes that ran verl and counted nothing: of those "zero" would be a guess."""
    if missing:
        raise RungFailedError(
            f"{len(missing)} processes left no ledger: {', '.join(missing)}",
            why="what they computed is unknown, so nothing can be said about the contract",
            todo="look for their pids in events.jsonl and output.log",
        )


def summary(profile: Profile, chosen: str, document: Mapping[str, Any]) -> dict[str, Any]:
    """What run.json keeps of precision.json."""
    keys = ("operations", "forbidden", "read_from_forbidden", "by_dtype", "attention")
    return {
        "mode": chosen,
        "forbids": [ban.name for ban in profile.numerics.forbidden.dtypes],
        "processes": len(document.get("processes", [])),
        "violations": len(document.get("violations", [])),
        **{key: document[key] for key in keys if key in document},
    }


def line(found: Mapping[str, Any]) -> str:
    """The summary for people."""
    forbids = " or ".join(found["forbids"]) or "anything that is forbidden"
    held = "enforced" if found["mode"] == "enforce" else "recorded"
    return (
        f"contract ({held}): {found.get('operations', 0):,} operations in {found['processes']} processes, "
        f"{found.get('forbidden', 0):,} of them in {forbids}; "
        f"attention {', '.join(found.get('attention', {})) or 'none'}"
    )
