"""From a local run to a cluster, key by key: what carries over, is restored, or holds only here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Final, Literal

import yaml
from pydantic import JsonValue, TypeAdapter

from harness.errors import RecordError
from harness.evidence.model import Run
from harness.handoff.conclusions import Conclusion, conclusions
from harness.handoff.manifest import Part
from harness.handoff.overrides import in_image
from harness.handoff.proof import command
from harness.handoff.words import bare, read
from harness.profiles import Profile

FILE: Final = "transfer.json"
Verdict = Literal["carries", "restored", "local-only", "job", "target"]
_REWARD = "reward.custom_reward_function.path"
_OURS = "/harness/"


class Rule(Part):
    """What becomes of some keys, and why."""

    keys: tuple[str, ...]
    verdict: Verdict
    reason: str


class Key(Part):
    """One key of the local run."""

    key: str
    local: JsonValue
    verdict: Verdict
    target: JsonValue
    """What the job has; None where verl's own default takes its place."""
    by: Literal["user", "harness"]
    """Who set it in the local run."""
    reason: str


class Transfer(Part):
    """All of ``transfer.json``."""

    schema_version: Literal[1] = 1
    run: str
    status: str
    """Of the run; what it concludes holds for the rungs that passed."""
    source: str
    target: str
    keys: tuple[Key, ...]
    rungs: tuple[Conclusion, ...]
    carried: dict[str, JsonValue]
    """The overrides that a job takes over from the run."""

    def text(self) -> str:
        """The file."""
        return self.model_dump_json(indent=2) + "\n"


@cache
def rules() -> tuple[Rule, ...]:
    """The rules, in the order in which they are tried."""
    text = Path(__file__).with_name("keys.yaml").read_text(encoding="utf-8")
    return TypeAdapter(tuple[Rule, ...]).validate_python(yaml.safe_load(text))


def rule(key: str) -> Rule | None:
    """The first rule that names ``key``."""
    return next((r for r in rules() if any(fnmatchcase(bare(key), glob) for glob in r.keys)), None)


def transfer(run: Run, source: Profile, target: Profile, job: Mapping[str, JsonValue]) -> Transfer:
    """Judge each key that the run's trainer was started with. Pure.

    Args:
        run: the local run; its highest trainer rung counts.
        source: the profile that it ran under.
        target: the profile of the cluster.
        job: the overrides of a job for ``target`` that takes nothing over.

    Raises:
        RecordError: no trainer was started in the run.
    """
    used = read(command(run))
    if not used:
        raise RecordError(
            f"run {run.id} started no trainer",
            why="there are no overrides to carry over",
            todo="give a run that climbed to ppo",
        )
    given = run.settings.get("overrides")
    own = {bare(key) for key in read(str(word) for word in given)} if isinstance(given, list) else set()
    there = {bare(key): value for key, value in job.items()}
    keys = [_judge(key, value, bare(key) in own, target, there) for key, value in used.items()]
    carried = {key.key: key.target for key in keys if key.verdict == "carries"}
    return Transfer(
        run=run.id,
        status=run.status,
        source=source.name,
        target=target.name,
        keys=tuple(keys),
        rungs=conclusions(run, source, target),
        carried=carried,
    )


def _judge(key: str, local: JsonValue, by_user: bool, target: Profile, job: Mapping[str, JsonValue]) -> Key:
    found = rule(key)
    there = job.get(bare(key))
    verdict: Verdict
    if found is not None:
        verdict, reason = found.verdict, found.reason
        if verdict == "carries":
            there = local
    elif by_user:
        verdict, reason, there = "carries", "The user's own choice; nothing about it is local.", local
    else:
        verdict, reason = "target", "The target's profile decides."
    if verdict == "restored" and there == local:
        verdict, reason = "target", "The same on the target."
    if bare(key) == _REWARD and isinstance(local, str):
        if _OURS in local:
            there = in_image(target, local.rpartition(_OURS)[2])
        else:
            verdict, there = "local-only", None
            reason = f"A file of the local machine: copy it to /data, and give --set {_REWARD}=/data/FILE."
    if by_user and verdict in {"restored", "local-only"}:
        reason += " If you mean it for the cluster too, give it with --set."
    return Key(
        key=key,
        local=local,
        verdict=verdict,
        target=there,
        by="user" if by_user else "harness",
        reason=reason,
    )


def table(found: Transfer) -> Iterable[str]:
    """The same for people."""
    names = {
        "carries": "carries over",
        "restored": "restored (was small for the local run)",
        "local-only": "holds only locally",
        "job": "set by the job",
        "target": "set by the target's profile",
    }
    if found.status != "passed":
        yield f"run {found.run} is {found.status}: what it did not reach is not concluded"
    for verdict, title in names.items():
        keys = [key for key in found.keys if key.verdict == verdict]
        if not keys:
            continue
        yield f"{title}:"
        for key in keys:
            there = "verl's default" if key.target is None else key.target
            change = f"{key.local}" if key.target == key.local else f"{key.local} -> {there}"
            yield f"  {bare(key.key)}: {change}" + (" (yours)" if key.by == "user" else "")
            yield f"      {key.reason}"
    yield f"conclusions of run {found.run} on {found.target}:"
    for rung in found.rungs:
        yield f"  {rung.rung:10} {rung.transfers:6} {rung.reason}"
