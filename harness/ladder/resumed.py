"""What a resumed run must show against the one that was never interrupted. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness.errors import Problem
from harness.evidence import metrics
from harness.evidence.metrics import Step


def problems(
    whole: Sequence[Step],
    resumed: Sequence[Step],
    whole_digests: Sequence[str],
    resumed_digests: Sequence[str],
    *,
    after: int,
) -> Iterator[Problem]:
    """Every bit that differs from step ``after + 1`` on. ``digests``: of the weights at the rollout server.

    The first digest is that of the weights a run begins with, then comes one after each step.
    """
    expected = [step.step for step in whole if step.step > after]
    found = [step.step for step in resumed]
    if found != expected:
        yield Problem(
            what=f"the resumed run logged the steps {found}, not {expected}",
            why="it did not begin where the checkpoint was made",
            todo="look for 'Resuming from' in output.log",
        )
        return
    first = metrics.difference([step for step in whole if step.step > after], resumed)
    if first is not None:
        yield Problem(
            what=f"step {first.step}: {first.key} is {first.b!r} in the resumed run, {first.a!r} without "
            "an interruption",
            why="the first metric that differs by a bit: some state was not saved, or not restored",
            todo="compare metrics.jsonl of checkpoint/resumed with the uninterrupted run's",
        )
    same = list(whole_digests[after:])
    if list(resumed_digests) != same:
        where = next((n for n, (a, b) in enumerate(zip(same, resumed_digests, strict=False)) if a != b), None)
        at = (
            f"after step {after + where}"
            if where is not None
            else f"{len(resumed_digests)} times, not {len(same)}"
        )
        yield Problem(
            what=f"the rollout server took other weights {at}",
            why="the weights that were loaded are not those that were trained, or the step from them differs",
            todo="compare the digests of the events 'weights' in events.jsonl",
        )
