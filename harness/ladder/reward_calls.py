"""What calls of a reward function showed, as a pure function: calls in, findings out."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from harness.data.finding import Finding
from harness.ladder.reward_source import NO_SCORE

_SLOW = 1.0


@dataclass(frozen=True, kw_only=True)
class Call:
    """One response scored twice by verl's manager.

    ``scores`` and ``shown`` (the same written out) of both calls. ``error`` is the exception with its
    place; ``ended`` says that the process hung or died in the call.
    """

    kind: str
    row: int
    response: str
    scores: tuple[float | None, ...] = ()
    shown: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    seconds: float = 0.0
    error: str | None = None
    ended: str | None = None

    @property
    def score(self) -> float | None:
        """The score, where it is a finite number."""
        value = self.scores[0] if self.scores else None
        return value if value is not None and math.isfinite(value) else None


def evaluate(calls: Sequence[Call], *, reward: str, manager: str) -> list[Finding]:
    """Everything that would stop or spoil a training run with this reward function."""
    found = [*_manager(manager)]
    for check in (_ended, _raised, _no_score, _types, _random, _keys, _sense, _time):
        found += check(calls, reward)
    return found


def distribution(calls: Sequence[Call]) -> dict[str, dict[str, float]]:
    """Lowest, mean and highest score of each kind of response that has scores."""
    kinds = dict.fromkeys(call.kind for call in calls)
    scores = {kind: [c.score for c in calls if c.kind == kind and c.score is not None] for kind in kinds}
    return {
        kind: {"n": len(values), "min": min(values), "mean": statistics.fmean(values), "max": max(values)}
        for kind, values in scores.items()
        if values
    }


def _manager(name: str) -> Iterator[Finding]:
    if name == "batch":
        yield Finding(
            id="reward-manager-gone",
            level="warning",
            key="reward.reward_manager.name",
            what="verl 0.9.1's trainer refuses the reward manager 'batch'",
            why="the class is still in verl/workers/reward_manager, but the trainer looks in "
            "verl/experimental/reward_loop, whose registry does not have it: Unknown reward manager: batch",
            todo="score one response a call, with the manager naive or dapo",
        )


def _at(calls: Sequence[Call]) -> str:
    kinds = ", ".join(dict.fromkeys(call.kind for call in calls))
    return f"{len(calls)} responses ({kinds}), first at row {calls[0].row}: {_short(calls[0].response)!r}"


def _ended(calls: Sequence[Call], reward: str) -> Iterator[Finding]:
    for how in dict.fromkeys(call.ended for call in calls if call.ended):
        bad = [call for call in calls if call.ended == how]
        yield Finding(
            id="reward-ends",
            key=reward,
            what=f"a call {how}: {_at(bad)}",
            why="verl has no time limit around it: the whole step waits, or the worker is gone",
            todo="bound the work: no nested quantifiers in patterns, a limit on the text's length, no exit()",
        )


def _raised(calls: Sequence[Call], reward: str) -> Iterator[Finding]:
    for error in dict.fromkeys(call.error for call in calls if call.error and not _scoreless(call)):
        bad = [call for call in calls if call.error == error]
        yield Finding(
            id="reward-raises",
            key=reward,
            what=f"it raises {error}: {_at(bad)}",
            why="verl does not catch it: the training ends at the first such response",
            todo="return a score for every text, also for one that cannot be parsed",
        )


def _scoreless(call: Call) -> bool:
    """Whether it was verl's manager that missed the key: then no line of the user's file is named."""
    return call.error == "KeyError: 'score'"


def _no_score(calls: Sequence[Call], reward: str) -> Iterator[Finding]:
    bad = [call for call in calls if _scoreless(call)]
    if bad:
        yield Finding(
            id="reward-no-score",
            key=reward,
            what=f"it returns a dict without 'score': {_at(bad)}",
            why="verl's manager takes the score from there: KeyError: 'score' at the first such response",
            todo=NO_SCORE,
        )


def _types(calls: Sequence[Call], reward: str) -> Iterator[Finding]:
    bad = [c for c in calls if c.scores and any(s is None or not math.isfinite(s) for s in c.scores)]
    if bad:
        values = ", ".join(dict.fromkeys(text for c in bad for text in c.shown))
        yield Finding(
            id="reward-type",
            key=reward,
            what=f"it returns {_short(values)}: {_at(bad)}",
            why="verl writes the score into a float tensor: a finite number, or a dict with it under 'score'",
            todo=NO_SCORE,
        )


def _random(calls: Sequence[Call], reward: str) -> Iterator[Finding]:
    bad = [c for c in calls if c.score is not None and len(set(c.shown)) > 1]
    if bad:
        yield Finding(
            id="reward-random",
            key=reward,
            what=f"the same response gets different scores ({', '.join(bad[0].shown)}): {_at(bad)}",
            why="runs cannot be compared or replayed, and advantages are noise",
            todo="seed it, or remove what depends on time, order or an external judge",
        )


def _keys(calls: Sequence[Call], reward: str) -> Iterator[Finding]:
    kinds = {call.keys: call for call in calls if call.scores}
    if len(kinds) > 1:
        first, second, *_ = kinds
        yield Finding(
            id="reward-keys",
            key=reward,
            what=f"the returned dict has different keys: {', '.join(first)} and {', '.join(second)}",
            why="verl's agent loop looks up the first response's keys in all of them: KeyError "
            "(experimental/agent_loop/agent_loop.py:1111)",
            todo="return the same keys for every response",
        )


def _sense(calls: Sequence[Call], reward: str) -> Iterator[Finding]:
    """Faults of meaning are warnings: what is right is the user's to say."""
    spread = distribution(calls)
    scored = [call for call in calls if call.score is not None]
    if len(scored) > 1 and len({call.score for call in scored}) == 1:
        yield Finding(
            id="reward-flat",
            level="warning",
            key=reward,
            what=f"all {len(scored)} responses score {scored[0].score}",
            why="without differences there is no advantage and no gradient",
            todo="check what it compares: the ground truth itself scores no better than an empty response",
        )
        return
    best = max((spread[kind]["mean"] for kind in ("truth", "solution") if kind in spread), default=math.nan)
    for kind in ("empty", "generated", "wrong"):
        if kind in spread and spread[kind]["mean"] >= best:
            yield Finding(
                id="reward-upside-down",
                level="warning",
                key=reward,
                what=f"{kind} responses score {spread[kind]['mean']:.3g}, right answers {best:.3g}",
                why="a model is trained towards what scores highest",
                todo="check the sign, and the format in which it looks for the answer",
            )


def _time(calls: Sequence[Call], reward: str) -> Iterator[Finding]:
    slow = [call for call in calls if call.seconds > _SLOW]
    if slow:
        yield Finding(
            id="reward-slow",
            level="warning",
            key=reward,
            what=f"a call takes up to {max(c.seconds for c in slow):.1f} s: {_at(slow)}",
            why="a batch of 1024 responses is scored by reward.num_workers (8) workers: minutes a step",
            todo="make it faster, or raise reward.num_workers",
        )


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:40]}...{text[-10:]}"


def document(calls: Sequence[Call]) -> dict[str, Any]:
    """Times and scores of the calls, for JSON."""
    times = sorted(call.seconds for call in calls if call.scores)
    return {
        "calls": len(calls),
        "scores": distribution(calls),
        "seconds_per_call": {"median": times[len(times) // 2], "longest": times[-1]} if times else None,
    }
