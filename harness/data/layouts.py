"""From the columns that people have to the row that verl reads. Pure: a chunk in, verl's columns out.

``gsm8k``: ``question`` and an ``answer`` that ends in ``#### number``. ``flat``: a prompt and a response,
often with a reward, as several guides tell people to write. ``verl``: rows that are nearly right already.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from harness.data import gsm8k
from harness.data.sources import Chunk
from harness.errors import DataError, OverrideError, Problem

LayoutName = Literal["verl", "gsm8k", "flat"]
PROMPTS = ("prompt", "question", "instruction", "problem", "input", "query")
TRUTHS = ("ground_truth", "answer", "response", "solution", "output", "completion", "target")
_FINAL = re.compile(r"####\s*(-?[0-9][0-9.,]*)")
_SHOWN = 3


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How a file's columns are read, and what stands in the columns that it does not have."""

    name: LayoutName
    prompt: str
    truth: str
    data_source: str | None
    split: str


@dataclass(frozen=True, kw_only=True)
class Rows:
    """The converted rows of one chunk. ``prompts`` are texts of the user, or whole lists of messages.

    What is the same in all rows is one value; ``questions`` and ``answers`` go into extra_info, as in
    verl's own preparation of GSM8K.
    """

    first: int
    split: str
    data_source: list[str | None] | str | None
    prompts: list[str] | list[list[dict[str, str]]]
    ability: str | None
    truths: list[str | None]
    questions: list[Any] | None
    answers: list[Any] | None


@dataclass(kw_only=True)
class Refused:
    """Rows that cannot be converted, by column and reason; the first few places are kept."""

    places: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)

    def note(self, chunk: Chunk, row: int, column: str, what: str) -> None:
        """Remember one row."""
        self.counts[column, what] += 1
        kept = self.places.setdefault((column, what), [])
        if len(kept) < _SHOWN:
            kept.append(chunk.where(row, column))

    def problems(self) -> Iterator[Problem]:
        """One problem a column and reason, with the places of the first rows."""
        for (column, what), places in self.places.items():
            count = self.counts[column, what]
            more = f" (and in {count - 1} more rows: {', '.join(places[1:])})" if count > 1 else ""
            todo = "repair or remove these rows; nothing was written"
            yield Problem(what=f"{column} {what}{more}", where=places[0], todo=todo)


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
    if name == "verl":
        known = known or "reward_model"
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
    if data_source is None and "data_source" not in names:
        raise DataError(
            "no data_source",
            where=str(chunk.path),
            why="verl passes it to the reward function, and chooses its own rule by it",
            todo="give --data-source NAME: openai/gsm8k, or a name of yours with a reward of your own",
        )
    return Layout(name=name, prompt=asked, truth=known, data_source=data_source, split=split)  # type: ignore[arg-type]


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
    own = chunk.columns
    sources = own.get("data_source") if layout.data_source is None else None
    messages = _messages(chunk, layout, refused) if layout.name == "verl" else None
    solved = layout.name == "gsm8k"
    if layout.name == "verl" and "reward_model" in own:
        truths = _given_truths(chunk, refused)
    else:
        truths = _texts(chunk, layout.truth, _final if solved else _same, refused)
    return Rows(
        first=chunk.first,
        split=layout.split,
        data_source=_texts(chunk, "data_source", _same, refused) if sources else layout.data_source,
        prompts=messages if messages is not None else _questions(chunk, layout, refused),
        ability="math" if solved else None,
        truths=truths,
        questions=own[layout.prompt] if solved else None,
        answers=own[layout.truth] if solved else None,
    )


def used(layout: Layout) -> frozenset[str]:
    """The columns that :func:`rows` reads."""
    truth = "reward_model" if layout.name == "verl" else layout.truth
    return frozenset(
        {layout.prompt, layout.truth, truth, *(["data_source"] if not layout.data_source else [])}
    )


def _questions(chunk: Chunk, layout: Layout, refused: Refused) -> list[str]:
    ending = f" {gsm8k.INSTRUCTION}" if layout.name == "gsm8k" else ""
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
    for row, value in enumerate(chunk.columns.get(column) or [None] * chunk.rows):
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
    for row, value in enumerate(chunk.columns[layout.prompt]):
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


def _given_truths(chunk: Chunk, refused: Refused) -> list[str | None]:
    found: list[str | None] = []
    for row, model in enumerate(chunk.columns["reward_model"]):
        value, wrong = _text(model.get("ground_truth") if isinstance(model, dict) else None)
        if wrong:
            refused.note(chunk, row, "reward_model.ground_truth", wrong)
        found.append(value)
    return found
