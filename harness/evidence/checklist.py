"""What a task takes, and which of it the records prove. Pure: a list of records in, ticks out.

A record proves something of the state that it was made with. One of another lock, profile or harness stays in
the list as ``earlier``: it is no tick.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from harness.evidence import standing, words
from harness.evidence.model import Run

Task = Literal["local", "verl", "failure", "handoff"]
Parts = Mapping[str, Any]


class Tick(BaseModel):
    """One item: done with the record that proves it, or the command that would do it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    text: str
    command: str
    done: bool
    evidence: str | None = None
    """The record, or the file, that proves it."""
    earlier: str | None = None
    """A record that proved it with another lock, profile or harness."""


@dataclass(frozen=True, kw_only=True)
class Item:
    """``proves``: whether a record shows it. ``command`` may hold ``{profile}``, ``{short}``, ``{run}``."""

    name: str
    text: str
    command: str
    proves: Callable[[Run], bool]


def passed(run: Run, *rungs: str) -> bool:
    """Whether it passed, and each of these rungs with it."""
    names = {rung.name for rung in run.rungs if rung.status == "passed"}
    return run.status == "passed" and set(rungs) <= names


def chose(run: Run, **settings: object) -> bool:
    """Whether it was climbed with these settings."""
    return all(run.settings.get(key) == value for key, value in settings.items())


def overlaid(run: Run) -> bool:
    """Whether a verl checkout was laid over the locked one."""
    return bool(run.settings.get("verl_source"))


def _whole(run: Run) -> bool:
    return passed(run, "ppo") and chose(run, rollout="hf")


def _full(run: Run) -> bool:
    return passed(run, "checkpoint", "ppo-2ranks") and chose(run, checkpoint="disk")


def _learnt(run: Run) -> bool:
    return run.status == "passed" and any(rung.name.startswith("learn") for rung in run.rungs)


def _own(run: Run) -> bool:
    ours = chose(run, model="tiny", data="tiny")
    return passed(run, "ppo") and not ours


ITEMS: Mapping[Task, tuple[Item, ...]] = {
    "local": (
        Item(
            name="green",
            text="verl's own PPO trainer runs here, with a model that generates",
            command="verlock climb --profile {profile}",
            proves=lambda run: _whole(run) and not overlaid(run),
        ),
        Item(
            name="full",
            text="a killed run resumes bit for bit, and two ranks compute what one does",
            command="verlock climb --profile {profile} --full",
            proves=lambda run: _full(run) and not overlaid(run),
        ),
        Item(
            name="learns",
            text="three seeds learn a task: the losses have the right sign",
            command="verlock climb --profile {profile} --learn",
            proves=lambda run: _learnt(run) and not overlaid(run),
        ),
        Item(
            name="own",
            text="your model or data in place of the tiny ones",
            command="verlock climb --profile {profile} --model PATH --data PATH --reward PATH:FUNCTION",
            proves=lambda run: _own(run) and not overlaid(run),
        ),
        Item(
            name="command",
            text="your own training command, without a fault, and run small",
            command="verlock preflight --profile {profile} -- python -m verl.trainer.main_ppo ...",
            proves=lambda run: run.command[1:2] == ["preflight"] and passed(run, "ppo"),
        ),
    ),
    "verl": (
        Item(
            name="before",
            text="the locked verl passes, so that a difference is the checkout's",
            command="verlock climb --profile {profile}",
            proves=lambda run: _whole(run) and not overlaid(run),
        ),
        Item(
            name="after",
            text="the checkout passes the same rungs",
            command="verlock climb --profile {profile} --verl-source PATH",
            proves=lambda run: _whole(run) and overlaid(run),
        ),
        Item(
            name="after-full",
            text="the checkout saves, resumes and shards",
            command="verlock climb --profile {profile} --verl-source PATH --full",
            proves=lambda run: _full(run) and overlaid(run),
        ),
        Item(
            name="after-learns",
            text="three seeds learn with the checkout",
            command="verlock climb --profile {profile} --verl-source PATH --learn",
            proves=lambda run: _learnt(run) and overlaid(run),
        ),
    ),
    "handoff": (
        Item(
            name="rehearsed",
            text="the profile's own lock and contract hold on this CPU",
            command="nox -s smoke-{short} -- --rehearse",
            proves=lambda run: passed(run, "ppo") and run.rehearsal,
        ),
        Item(
            name="image",
            text="a run record names the image by its digest",
            command="nox -s build-{short} && nox -s smoke-{short} -- --rehearse --image",
            proves=lambda run: passed(run, "ppo") and run.image is not None,
        ),
    ),
}


def of_task(
    task: Task, runs: Sequence[Run], *, profile: str, short: str, parts: Parts, failed: Run | None = None
) -> list[Tick]:
    """The items of a task, ticked. ``runs``: the oldest first; ``parts``: of the fingerprint here and now."""
    mine = [run for run in runs if run.profile == profile]
    items = ITEMS[task] if task != "failure" else _of_failure(failed) if failed else ()
    names = {"profile": profile, "short": short, "run": failed.id if failed else "latest"}
    return [_tick(item, mine, parts, names) for item in items]


def _tick(item: Item, runs: Sequence[Run], parts: Parts, names: Mapping[str, str]) -> Tick:
    proving = [run for run in runs if item.proves(run)]
    now = [run for run in proving if same_state(run, parts)]
    return Tick(
        name=item.name,
        text=item.text,
        command=item.command.format(**names),
        done=bool(now),
        evidence=now[-1].id if now else None,
        earlier=proving[-1].id if proving and not now else None,
    )


def same_state(run: Run, parts: Parts) -> bool:
    """Whether the record is of the lock, profile and harness that are here now."""
    then = run.fingerprint.get("parts")
    if run.image is not None:  # its harness holds the inside rooms alone; the digest stands for it
        return isinstance(then, dict) and then.get("lock") == parts.get("lock")
    return isinstance(then, dict) and all(then.get(key) == value for key, value in parts.items())


def failed_rung(run: Run) -> str | None:
    """The rung in which it ended badly; none before the first."""
    return next((rung.name for rung in run.rungs if rung.status == "failed"), None)


def _of_failure(failed: Run) -> tuple[Item, ...]:
    signature = failed.failure.signature if failed.failure else ""
    rung = failed_rung(failed)
    narrow = words.between(failed, rung, rung) if rung else words.whole(failed)
    return (
        Item(
            name="named",
            text="the failure has a name, a class and a fix",
            command="verlock diagnose runs/{run}",
            proves=lambda run: run.id == failed.id and signature not in {"", "unknown"},
        ),
        Item(
            name="reproduced",
            text="it fails again in the same way: it is no accident",
            command="verlock replay runs/{run}",
            proves=lambda run: standing.same_failure(run, failed),
        ),
        Item(
            name="rung",
            text=f"the rung {rung or 'env'}, which failed, passes with the same options",
            command=_literal(narrow),
            proves=lambda run: (
                run.started > failed.started
                and standing.same_asked(run, failed)
                and any(r.name == rung and r.status == "passed" for r in run.rungs)
            ),
        ),
        Item(
            name="whole",
            text="the command that failed passes",
            command=_literal(words.whole(failed)),
            proves=lambda run: standing.answers(run, failed),
        ),
    )


def _literal(command: Sequence[str]) -> str:
    """As a shell reads it; a brace in an override is none of ours."""
    return shlex.join(command).replace("{", "{{").replace("}", "}}")
