r"""Responses to try a reward function with: the right answer, nothing, and what models really write.

Made without a model and always the same. Each kind is a family of faults that reward functions have: an
``int`` of 5000 digits raises since Python 3.11, nested quantifiers of a pattern never end on a long run of
one character, a parser of ``\boxed{`` runs past the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

GENERATED = "generated"


@dataclass(frozen=True, kw_only=True)
class Response:
    """One response to one row; ``text`` is none where the model must write it first."""

    kind: str
    row: int
    text: str | None


def make(rows: list[dict[str, Any]]) -> Iterator[Response]:
    """All kinds for each row of a data file that passed its check."""
    for number, row in enumerate(rows):
        truth = str(row["reward_model"]["ground_truth"])
        other = str(rows[(number + 1) % len(rows)]["reward_model"]["ground_truth"])
        yield Response(kind=GENERATED, row=number, text=None)
        for kind, text in _texts(truth, other, row):
            yield Response(kind=kind, row=number, text=text)


def _texts(truth: str, other: str, row: dict[str, Any]) -> Iterator[tuple[str, str]]:
    solution = (row.get("extra_info") or {}).get("answer")
    yield "truth", truth
    yield (
        "solution",
        solution if isinstance(solution, str) else f"The answer is \\boxed{{{truth}}}.\n#### {truth}",
    )
    yield "empty", ""
    yield "wrong", f"The answer is \\boxed{{{other}x}}.\n#### {other}x"
    yield "adversarial: every answer", "\n".join(f"#### {n}" for n in range(50)) + f"\n#### {truth}"
    yield "adversarial: 5000 digits", "#### " + "9" * 5000
    yield "adversarial: unclosed", "\\boxed{" * 40 + "```python\n" + '{"answer": [' + "$" * 7
    yield "adversarial: long run", "a" * 3000 + " " * 3000 + "!"
    yield "adversarial: symbols", "#### \u0663\u00bd\u2212\u221e \U0001f600 \x00 NaN inf -0 1e999 %s {} \\ (("
    prompt = row.get("prompt") or [{}]
    yield "adversarial: echo", str(prompt[-1].get("content", ""))
