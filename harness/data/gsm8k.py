"""Word problems in the layout that verl's ``examples/data_preprocess/gsm8k.py`` writes.

The problems are made here, from sentences and random numbers; none is copied from GSM8K. verl's own
rule reward for ``openai/gsm8k`` scores them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.data.rows import write_rows

DATA_SOURCE = "openai/gsm8k"
INSTRUCTION = 'Let\'s think step by step and output the final answer after "####".'

_SENTENCES: tuple[tuple[str, Callable[[int, int], int]], ...] = (
    ("{name} has {a} {thing} and buys {b} more. How many {thing} does {name} have now?", lambda a, b: a + b),
    ("{name} packs {a} boxes with {b} {thing} in each. How many {thing} are packed?", lambda a, b: a * b),
    ("{name} had {c} {thing} and gave {a} of them away. How many {thing} are left?", lambda _a, b: b),
)
_NAMES = ("Ada", "Emmy", "Alan", "Grace")
_THINGS = ("apples", "pencils", "stamps", "marbles")


@dataclass(frozen=True, kw_only=True)
class Question:
    """One problem: its text, the worked solution that ends in ``#### answer``, and the answer."""

    text: str
    solution: str
    answer: str


def make(rows: int, seed: int) -> Iterator[Question]:
    """Make ``rows`` problems of one step each; the same arguments give the same problems."""
    draw = random.Random(seed)
    for _ in range(rows):
        sentence, solve = draw.choice(_SENTENCES)
        a, b = draw.randrange(2, 20), draw.randrange(2, 20)
        text = sentence.format(name=draw.choice(_NAMES), thing=draw.choice(_THINGS), a=a, b=b, c=a + b)
        answer = str(solve(a, b))
        yield Question(text=text, solution=f"The answer is {answer}.\n#### {answer}", answer=answer)


def write(path: Path, questions: Iterable[Question], *, split: str = "train") -> Path:
    """Write the questions as one Parquet file; raises :class:`DiskFullError` or :class:`RecordError`."""
    return write_rows(path, [_row(question, index, split) for index, question in enumerate(questions)])


def _row(question: Question, index: int, split: str) -> dict[str, Any]:
    return {
        "data_source": DATA_SOURCE,
        "prompt": [{"role": "user", "content": f"{question.text} {INSTRUCTION}"}],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": question.answer},
        "extra_info": {
            "split": split,
            "index": index,
            "answer": question.solution,
            "question": question.text,
        },
    }
