"""Rules over the steps of a run: each warns with the reason, and with what to look at. Pure.

They say what verl itself survives: it ends with exit code 0 after all of these. Each compares the last
steps with the first ones of the same run, since no absolute value is right for every model and task; a
window keeps one odd step from counting.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

from harness.errors import FailureClass
from harness.evidence.health.points import Point
from harness.evidence.health.window import WINDOW, lasting
from harness.evidence.health.window import ends as ends_of
from harness.evidence.metrics import Value
from harness.evidence.model import Finding

_COLLAPSED = 0.4  # of the first lengths: 16 to 5 tokens is 0.31
_ENDLESS, _ENDED_AT_FIRST = 0.9, 0.5  # share of responses that reach the limit
_LONG = 128  # tokens; a shorter limit cuts good answers too
_ENTROPY_LEFT, _ENTROPY_LOW = 0.05, 0.2  # share of the first; nats a token
_KL_TIMES, _KL_HIGH, _UPDATE_KL = 10.0, 1.0, 0.5  # times the first; nats a token
_CLIPPED = 0.4
_SAME = 1e-9
# Ray's control store keeps a record of each task, up to 100,000 (0.9 MiB a step of the tiny task, measured).
_RAYS_OWN = ("gcs_server", "raylet", "dashboard.py", "log_monitor.py", "monitor.py", "ray::DashboardAgent")
# A leak grows on; an allocator's pools and caches grow at first and then stand still.
_MEMORY_STEPS, _MEMORY_GROWTH, _MEMORY_RISES, _MEMORY_LATE = 5, 32 * 2**20, 0.8, 0.5


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What the run was: ``limit`` is ``data.max_response_length`` in tokens.

    ``untrained`` is a random model, which has not learnt to end a response: it reaches the limit from the
    first step on, and that is no fault.
    """

    rung: str = "train"
    limit: int | None = None
    untrained: bool = False


def evaluate(points: Sequence[Point], terms: Terms) -> list[Finding]:
    """Everything that is not well, in the order of the rules."""
    found: list[Finding] = []
    for rule in RULES:
        found += rule(points, terms)
    return found


def _finding(id_: str, terms: Terms, point: Point, **said: str) -> Finding:
    kind: FailureClass = "resource" if id_ == "memory-grows" else "model-logic"
    return Finding(id=id_, failure_class=kind, rung=terms.rung, step=point.step, **said)


def _gradients(points: Sequence[Point], terms: Terms) -> Iterator[Finding]:
    bad = [p for p in points if p.skipped or any(_not_finite(norm) for norm in p.gradients.values())]
    if bad:
        names = sorted({key for p in bad for key, norm in p.gradients.items() if _not_finite(norm)})
        yield _finding(
            "gradient-not-finite",
            terms,
            bad[0],
            what=f"{' and '.join(names) or 'a gradient'} is not finite in {_steps(bad)}",
            why="verl prints a warning, leaves out the optimiser's step and goes on: nothing is learnt there",
            todo="look at losses and log-probabilities of the first such step; repeat in float32, with a "
            "smaller learning rate",
        )


def _not_finite(norm: Value) -> bool:
    return norm is None or (isinstance(norm, float) and not math.isfinite(norm))


def _constant_reward(points: Sequence[Point], terms: Terms) -> Iterator[Finding]:
    same = lasting(points, lambda p: p.reward_std == 0)
    if len(same) < WINDOW:
        return
    last, first = same[-1], fmean(p.reward for p in points[:WINDOW])
    if last.reward > first + _SAME:  # all responses have learnt to get the best
        return
    yield _finding(
        "reward-constant",
        terms,
        same[0],
        what=f"every response has had the reward {last.reward:g} since step {same[0].step}",
        why="without differences all advantages are equal: there is nothing to learn from",
        todo="call the reward function on right and wrong answers: `verlock reward try PATH:FUNCTION`",
    )


def _stuck_deviation(points: Sequence[Point], terms: Terms) -> Iterator[Finding]:
    last = points[-1] if points else None
    if last is None or not last.reward_std > 0:
        return
    same = lasting(points, lambda p: math.isclose(p.reward_std, last.reward_std, rel_tol=_SAME))
    if len(same) > WINDOW and all(math.isclose(p.reward, last.reward, rel_tol=_SAME) for p in same):
        yield _finding(
            "reward-deviation-stuck",
            terms,
            same[0],
            what=f"the rewards' mean {last.reward:g} and deviation {last.reward_std:g} have not moved since "
            f"step {same[0].step}",
            why="the same responses come again and again, or the reward does not depend on them",
            todo="compare two files of the run's samples/; check that the sampling temperature is not 0",
        )


def _collapse(points: Sequence[Point], terms: Terms) -> Iterator[Finding]:
    ends = ends_of(points, lambda p: p.length)
    if ends and ends.last < _COLLAPSED * ends.first:
        yield _finding(
            "responses-collapse",
            terms,
            ends.begins,
            what=f"responses went from {ends.first:.1f} to {ends.last:.1f} tokens",
            why="the reward is as high, or higher, for an answer that says next to nothing",
            todo="read the last file of the run's samples/; let short answers score less",
        )


def _endless(points: Sequence[Point], terms: Terms) -> Iterator[Finding]:
    ends = ends_of(points, lambda p: p.at_limit)
    if not ends or ends.last < _ENDLESS:
        return
    grown = ends.least <= _ENDED_AT_FIRST
    always = not terms.untrained and (terms.limit or 0) >= _LONG and ends.first >= _ENDLESS
    if grown or always:
        yield _finding(
            "responses-endless",
            terms,
            ends.begins if grown else points[0],
            what=f"{ends.last:.0%} of the responses run to the limit"
            + (f" of {terms.limit} tokens" if terms.limit else "")
            + (f", {ends.least:.0%} at first" if grown else ", from the first step on"),
            why="the model no longer ends its answers, or the tokenizer's end token is not the model's",
            todo="read the last file of the run's samples/; check eos_token_id of tokenizer, "
            "generation_config.json and chat template; let cut answers score less",
        )


def _entropy(points: Sequence[Point], terms: Terms) -> Iterator[Finding]:
    ends = ends_of(points, lambda p: p.entropy)
    if ends and ends.last < min(_ENTROPY_LEFT * ends.first, _ENTROPY_LOW):
        yield _finding(
            "entropy-collapse",
            terms,
            ends.begins,
            what=f"the entropy went from {ends.first:.3g} to {ends.last:.3g} nats a token",
            why="the policy writes the same tokens every time and no longer explores",
            todo="use a smaller learning rate, an entropy bonus (actor.entropy_coeff) or a higher upper clip "
            "(actor.clip_ratio_high)",
        )


def _kl(points: Sequence[Point], terms: Terms) -> Iterator[Finding]:
    ends = ends_of(points, lambda p: p.reference_kl)
    if ends and ends.last > max(_KL_TIMES * abs(ends.first), _KL_HIGH):
        yield _finding(
            "kl-runs-off",
            terms,
            ends.begins,
            what=f"the KL to the reference went from {ends.first:.3g} to {ends.last:.3g} nats a token",
            why="the policy has left the model that it began as: the KL term is too weak or the steps are "
            "too large",
            todo="use a smaller learning rate, or a larger actor.kl_loss_coef",
        )
    ends = ends_of(points, lambda p: abs(p.update_kl))
    if ends and ends.last > _UPDATE_KL:
        yield _finding(
            "update-too-large",
            terms,
            ends.begins,
            what=f"one step moves the policy by {ends.last:.3g} nats a token (actor/ppo_kl)",
            why="PPO's clipping holds for small steps; the responses are then of another policy",
            todo="use a smaller learning rate, fewer mini batches or ppo_epochs",
        )


def _clipping(points: Sequence[Point], terms: Terms) -> Iterator[Finding]:
    ends = ends_of(points, lambda p: p.clipped)
    if ends and ends.last > _CLIPPED:
        yield _finding(
            "clip-fraction-high",
            terms,
            ends.begins,
            what=f"{ends.last:.0%} of the tokens are clipped (actor/pg_clipfrac)",
            why="clipped tokens give no gradient: most of each batch is not learnt from",
            todo="use a smaller learning rate, fewer mini batches or ppo_epochs",
        )


def _memory(points: Sequence[Point], terms: Terms) -> Iterator[Finding]:
    settled = points[max(WINDOW, len(points) // 4) :]
    # Not only those of the last step: they have ended when its line is read.
    for process in sorted({name for point in settled for name in point.memory}):
        if process.startswith(_RAYS_OWN):
            continue
        seen = [(p, p.memory[process]) for p in settled if process in p.memory]
        if len(seen) < _MEMORY_STEPS or not _leaks([used for _, used in seen]):
            continue
        (first, before), (last, after) = seen[0], seen[-1]
        each = (after - before) / (last.step - first.step) / 2**20
        yield _finding(
            "memory-grows",
            terms,
            first,
            what=f"{process} grows from step to step: {before / 2**20:.0f} MiB after step {first.step}, "
            f"{after / 2**20:.0f} MiB after step {last.step}",
            why=f"{each:.1f} MiB a step that are not given back; the run ends when the host's memory does",
            todo="look for what this process keeps: a list or cache in a reward function, tensors in a "
            "metric, an unbounded queue",
        )


def _leaks(used: Sequence[int]) -> bool:
    rises = [after - before for before, after in pairwise(used)]
    grown, half = used[-1] - used[0], used[len(used) // 2]
    steady = sum(rise > 0 for rise in rises) >= _MEMORY_RISES * len(rises)
    goes_on = used[-1] - half >= _MEMORY_LATE * (half - used[0])
    return grown >= _MEMORY_GROWTH and steady and goes_on


def _steps(points: Sequence[Point]) -> str:
    numbers = [str(point.step) for point in points]
    shown = ", ".join(numbers[:5]) + (f" and {len(numbers) - 5} more" if len(numbers) > 5 else "")
    return f"step{'s' if len(numbers) > 1 else ''} {shown}"


RULES: tuple[Callable[[Sequence[Point], Terms], Iterator[Finding]], ...] = (
    _gradients,
    _constant_reward,
    _stuck_deviation,
    _collapse,
    _endless,
    _entropy,
    _kl,
    _clipping,
    _memory,
)
