"""From the columns that people have to the row that verl reads. Pure: a chunk in, verl's columns out.

``gsm8k``: ``question`` and an ``answer`` that ends in ``#### number``. ``flat``: a prompt and a response,
often with a reward, as several guides tell people to write. ``verl``: rows that are nearly right already.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from harness.data import gsm8k
from harness.data.chunk import Chunk
from harness.data.refused import Refused
from harness.errors import DataError, OverrideError

LayoutName = Literal["verl", "gsm8k", "flat"]
PROMPTS = ("prompt", "question", "instruction", "problem", "input", "query")
TRUTHS = ("ground_truth", "answer", "response", "solution", "output", "completion", "target")
SOURCE, ABILITY, MODEL = "data_source", "ability", "reward_model"
_FINAL = re.compile(r"####\s*(-?[0-9][0-9.,]*)")


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How a file's columns are read, and what stands in the columns that it does not have."""

    name: LayoutName
    prompt: str
    truth: str
    data_source: str | None
    split: str

    @property
    def solved(self) -> bool:
        """Whether ``truth`` is a worked answer, with the number at its end."""
        return self.name == "gsm8k"

    @property
    def nested(self) -> bool:
        """Whether the answer is ``ground_truth`` in the column ``truth``, as verl has it."""
        return self.name == "verl" and self.truth == MODEL

    @property
    def columns(self) -> frozenset[str]:
        """The columns that :func:`rows` reads, where the file has them: it is given no other."""
        source = (SOURCE,) if self.data_source is None else ()
        return frozenset({self.prompt, self.truth, ABILITY, *source})


@dataclass(frozen=True, kw_only=True)
class Rows:
    """The converted rows of one chunk. ``prompts`` are texts of the user, or whole lists of messages.

    What is the same in all rows is one value; ``questions`` and ``answers`` go into extra_info, as in
    verl's own preparation of GSM8K. The user's own extra_info is not here: :mod:`harness.data.extra_info`.
    """

    first: int
    split: str
    data_source: list[str | None] | str | None
    prompts: list[str] | list[list[dict[str, str]]]
    ability: list[str | None] | str | None
    truths: list[str | None]
    questions: list[Any] | None
    answers: list[Any] | None


def known_layout(name: str) -> str:
    """``name``, where it is a layout or ``auto``; raises :class:`OverrideError`."""
    if name not in {"auto", *get_args(LayoutName)}:
        todo = f"one of: auto, {', '.join(get_args(LayoutName))}"
        raise OverrideError(f"--layout {name} is unknown", todo=todo)
    return name


def detect(
    chunk: Chunk, *, name: str, prompt: str | None, truth: str | None, data_source: str | None, split: str
) -> Layout:
    """Choose the layout by the first rows; ``name`` is one of the layouts or ``auto``.

    Raises :class:`DataError` that names the columns where no layout fits, or a column is not there.
    """
    names = list(chunk.columns)
    asked = prompt or next((n for n in PROMPTS if n in names), None)
    known = truth or next((n for n in TRUTHS if n in names and n != asked), None)
    if name == "auto":
        name = _guess(chunk, asked, known)
    if name == "verl" and truth is None and (known is None or MODEL in names):
        known = MODEL
    missing = [n for n in (prompt, truth) if n is not None and n not in names]
    if asked is None or known is None or missing:
        raise DataError(
            f"no column {missing[0]!r}" if missing else f"no {'answer' if asked else 'question'} to be found",
            where=str(chunk.path),
            why=f"the columns are {', '.join(names) or 'none'}",
            todo="name them: --prompt COLUMN --truth COLUMN",
        )
    if name == "gsm8k":
        data_source = data_source or gsm8k.DATA_SOURCE
    return Layout(name=name, prompt=asked, truth=known, data_source=data_source or None, split=split)  # type: ignore[arg-type]


def _guess(chunk: Chunk, prompt: str | None, truth: str | None) -> LayoutName:
    if prompt is not None and isinstance(
        _first(chunk.columns[prompt]) if prompt in chunk.columns else None, list
    ):
        return "verl"
    answer = _first(chunk.columns.get(truth or "", []))
    if prompt == "question" and isinstance(answer, str) and "####" in answer:
        return "gsm8k"
    return "flat"


def _first(values: Sequence[Any]) -> Any:
    return next((value for value in values if value is not None), None)


def rows(chunk: Chunk, layout: Layout, refused: Refused) -> Rows:
    """What verl reads of one chunk; rows that cannot be converted are noted in ``refused``."""
    chunk = chunk.only(layout.columns)
    if layout.nested:
        truths = _given_truths(chunk, layout.truth, refused)
    else:
        truths = _texts(chunk, layout.truth, _final if layout.solved else _same, refused)
    verl = layout.name == "verl"
    return Rows(
        first=chunk.first,
        split=layout.split,
        data_source=_texts(chunk, SOURCE, _same, refused)
        if layout.data_source is None
        else layout.data_source,
        prompts=_messages(chunk, layout, refused) if verl else _questions(chunk, layout, refused),
        ability=_abilities(chunk, "math" if layout.solved else None, refused),
        truths=truths,
        questions=chunk.column(layout.prompt) if layout.solved else None,
        answers=chunk.column(layout.truth) if layout.solved else None,
    )


def _abilities(chunk: Chunk, otherwise: str | None, refused: Refused) -> list[str | None] | str | None:
    """The user's own words, where a row has one; verl's preparation of GSM8K writes ``math``."""
    if ABILITY not in chunk.columns:
        return otherwise
    found: list[str | None] = []
    for row, value in enumerate(chunk.column(ABILITY)):
        text, wrong = (otherwise, "") if value in (None, "") else _text(value)
        if wrong:
            refused.note(chunk, row, ABILITY, wrong)
        found.append(text)
    return found


def _questions(chunk: Chunk, layout: Layout, refused: Refused) -> list[str]:
    ending = f" {gsm8k.INSTRUCTION}" if layout.solved else ""
    return [f"{text}{ending}" for text in _texts(chunk, layout.prompt, _same, refused)]


def _same(text: str) -> str:
    return text


def _final(text: str) -> str | None:
    """The number after the last ``####``, without thousands separators, as verl's rule compares it."""
    found = _FINAL.findall(text)
    return found[-1].replace(",", "").rstrip(".") if found else None


def _texts(
    chunk: Chunk, column: str, take: Callable[[str], str | None], refused: Refused
) -> list[str | None]:
    """One text a row; numbers are written out; anything else is refused."""
    found: list[str | None] = []
    for row, value in enumerate(chunk.column(column)):
        text, wrong = _text(value)
        if text is not None:
            text = take(text)
            wrong = "has no '#### number'" if text is None else wrong
        if wrong:
            refused.note(chunk, row, column, wrong)
        found.append(text)
    return found


def _text(value: Any) -> tuple[str | None, str]:
    if isinstance(value, str):
        if not value.strip():
            return None, "is empty"
        return (value, "") if _encodes(value) else (None, "holds half of a surrogate pair, which is no text")
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None, "is null or empty" if value is None else f"is a {type(value).__name__}, not a text"
    return (str(value), "") if math.isfinite(value) else (None, f"is {value}, which is no answer")


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _messages(chunk: Chunk, layout: Layout, refused: Refused) -> list[list[dict[str, str]]]:
    """Lists of chat messages as they are, where each has a role and a content."""
    found = []
    for row, value in enumerate(chunk.column(layout.prompt)):
        wrong = _wrong_messages(value)
        if wrong:
            refused.note(chunk, row, layout.prompt, wrong)
        messages = [] if wrong else value
        found.append([{"role": m["role"], "content": m["content"]} for m in messages])
    return found


def _wrong_messages(value: Any) -> str:
    if not isinstance(value, list) or not value:
        return "is not a list of messages"
    for message in value:
        if not isinstance(message, dict) or not {"role", "content"} <= message.keys():
            return "has a message without role and content"
        for part in ("role", "content"):
            wrong = _text(message[part])[1]
            if wrong or not isinstance(message[part], str):
                return f"has a message whose {part} {wrong or 'is not a text'}"
    return ""


def _given_truths(chunk: Chunk, column: str, refused: Refused) -> list[str | None]:
    found: list[str | None] = []
    for row, model in enumerate(chunk.column(column)):
        value, wrong = _text(model.get("ground_truth") if isinstance(model, dict) else None)
        if wrong:
            refused.note(chunk, row, f"{column}.ground_truth", wrong)
        found.append(value)
    return found
