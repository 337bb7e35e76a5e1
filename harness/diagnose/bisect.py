"""``verlock bisect``: the first commit of a verl checkout with which a metric changes or a rung breaks.

Both ends are run first: where they part is the sign that is looked for in the commits between, by halving.
What shows the sign is bad, what shows the good end's value is good, and a commit that does not come so far
(it breaks below, or a patch does not fit it) is passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from harness.diagnose.commits import Repository
from harness.errors import BisectError
from harness.evidence import metrics, outcome
from harness.evidence.metrics import ABSENT
from harness.evidence.outcome import Outcome, Parting

Verdict = Literal["good", "bad", "passed over"]


class Bisected(BaseModel):
    """What was found: ``verlock bisect --json``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    commit: str | None
    """None where commits that could not be judged lie beside it: then it is one of ``suspects``."""
    title: str
    author: str
    date: str
    suspects: list[str]
    parting: Parting
    """Between the last good commit's run and the first bad one's."""
    good_run: str
    bad_run: str
    runs: int
    commits: int
    """How many commits between the two ends touch verl."""
    judged: dict[str, Verdict]


@dataclass(frozen=True, kw_only=True)
class Tried:
    """One commit's run."""

    folder: Path
    outcome: Outcome


@dataclass(kw_only=True)
class Bisection:
    """One search. ``run`` climbs with a commit, up to a rung where one is given."""

    repository: Repository
    run: Callable[[str, str | None], Tried]
    tell: Callable[[str], None]
    metric: str | None = None
    tried: dict[str, Tried] = field(default_factory=dict)
    judged: dict[str, Verdict] = field(default_factory=dict)

    def locate(self, span: str) -> Bisected:
        """Make the runs.

        Raises:
            BisectError: the two ends come to the same, or the repository cannot be asked.
        """
        good, bad = self.repository.ends(span)
        commits = len(self.repository.middle_first([good], bad))
        self.tell(f"{commits} commits between the two touch verl")
        sign = self._sign(good, bad)
        self.tell(f"the two ends part: {sign.line()}")
        reference, goods, tip = self.tried[good], [good], bad
        while rest := [sha for sha in self.repository.middle_first(goods, tip) if sha not in self.judged]:
            verdict = judge(sign, reference.outcome, self._try(rest[0], sign.rung.split("/")[0]).outcome)
            self._note(rest[0], verdict)
            if verdict == "bad":
                tip = rest[0]
            elif verdict == "good":
                goods.append(rest[0])
        return self._found(goods, tip, commits)

    def _sign(self, good: str, bad: str) -> Parting:
        outcomes = [self._try(sha, None).outcome for sha in (good, bad)]
        found = first_of(self.metric, *outcomes) if self.metric else outcome.parting(*outcomes)
        if found is None:
            raise BisectError(
                "the two ends come to the same" + (f" in {self.metric}" if self.metric else ""),
                where=f"{good[:12]}..{bad[:12]}",
                why=f"{self.tried[good].folder} and {self.tried[bad].folder} agree to the last bit",
                todo="give the climb that shows it, after --, or another range",
            )
        self._note(good, "good")
        self._note(bad, "bad")
        return found

    def _try(self, sha: str, last: str | None) -> Tried:
        self.tell(f"  running {self.repository.commit(sha)}")
        self.tried[sha] = self.run(sha, last)
        return self.tried[sha]

    def _note(self, sha: str, verdict: Verdict) -> None:
        self.judged[sha] = verdict
        self.tell(f"  {verdict:11} {sha[:12]}: {self.tried[sha].folder}")

    def _found(self, goods: Sequence[str], tip: str, commits: int) -> Bisected:
        suspects = self.repository.middle_first(goods, tip)
        commit = self.repository.commit(tip)
        last = self.tried[goods[-1]]
        parting = _between(last.outcome, self.tried[tip].outcome, self.metric)
        return Bisected(
            commit=tip if suspects == [tip] else None,
            title=commit.title,
            author=commit.author,
            date=commit.date,
            suspects=suspects,
            parting=parting,
            good_run=str(last.folder),
            bad_run=str(self.tried[tip].folder),
            runs=len(self.tried),
            commits=commits,
            judged=self.judged,
        )


def _between(good: Outcome, bad: Outcome, metric: str | None) -> Parting:
    found = first_of(metric, good, bad) if metric else outcome.parting(good, bad)
    if found is None:
        raise BisectError(
            "the last good and the first bad commit come to the same",
            why="the climb is not deterministic: the same words do not give the same bits",
            todo="verlock replay a run of it: what differs there comes from outside",
        )
    return found


def judge(sign: Parting, good: Outcome, seen: Outcome) -> Verdict:
    """Whether a run shows the sign. Pure."""
    if sign.kind in {"metric", "measured"}:
        one, other = _values(sign, good), _values(sign, seen)
        if other is None:
            return "passed over"
        return "good" if one == other else "bad"
    name = sign.rung.split("/")[0]
    statuses = [next((r.status for r in o.run.rungs if r.name == name), ABSENT) for o in (good, seen)]
    if statuses[1] in {ABSENT, "interrupted"}:
        return "passed over"
    if sign.kind == "verdict":
        return "good" if statuses[0] == statuses[1] else "bad"
    return "good" if outcome.failure(good.run) == outcome.failure(seen.run) else "bad"


def _values(sign: Parting, seen: Outcome) -> list[object] | None:
    """All values of the sign's key, as bits; none where its rung did not pass."""
    rung = next((r for r in seen.run.rungs if r.name == sign.rung.split("/")[0]), None)
    if rung is None or rung.status != "passed":
        return None
    if sign.kind == "measured":
        return [metrics.bits(dict(outcome.flat(rung.details)).get(sign.key, ABSENT))]
    steps = seen.steps.get(sign.rung, ())
    return [(step.step, metrics.bits(step.values.get(sign.key, ABSENT))) for step in steps]


def first_of(metric: str, a: Outcome, b: Outcome) -> Parting | None:
    """The first step at which one metric differs, in the lowest rung that logs it."""
    logged = [place for place in a.steps if any(metric in step.values for step in a.steps[place])]
    if not logged:
        known = sorted({key for steps in a.steps.values() for step in steps for key in step.values})
        raise BisectError(
            f"no rung logged a metric {metric} at the good end",
            where="--metric",
            todo=f"one of: {', '.join(known[:20])}{', ...' if len(known) > 20 else ''}"
            if known
            else "climb to a trainer's rung",
        )
    for place in logged:
        ours, theirs = (_only(metric, o.steps.get(place, ())) for o in (a, b))
        found = metrics.difference(ours, theirs)
        if found:
            return Parting(rung=place, kind="metric", key=metric, step=found.step, a=found.a, b=found.b)
    return None


def _only(metric: str, steps: Sequence[metrics.Step]) -> list[metrics.Step]:
    return [
        metrics.Step(step=s.step, values={k: v for k, v in s.values.items() if k == metric}) for s in steps
    ]
