"""What is wrong with the meaning of rows, seen in one pass over the batches of a file.

Memory: 8 bytes a row for duplicates and 4 for lengths, and one batch.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from harness.data import chat_check, parquet_schema, truths
from harness.data.finding import Finding
from harness.data.repeats import Repeats
from harness.data.row_index import RowIndex

ROLES = frozenset({"system", "user", "assistant", "tool"})
_SHOWN = 3


@dataclass(frozen=True, kw_only=True)
class Lengths:
    """Tokens a prompt has after the chat template."""

    shortest: int
    median: int
    p95: int
    longest: int
    longest_row: int


class RowWatch:
    """Collects over batches; :meth:`findings` and :meth:`lengths` say what was seen."""

    def __init__(
        self, *, path: str, prompt_key: str, tokenizer: Any, limit: int, render: int | None = None
    ) -> None:
        """Take ``tokenizer`` to render prompts (the first ``render``), or none to leave that out."""
        self._path, self._key, self._tokenizer, self._limit = path, prompt_key, tokenizer, limit
        self._render_until = render
        self.index = RowIndex()
        self._repeats = Repeats()
        self._tokens = array("I")
        self._rows: dict[str, list[int]] = {}
        self._counts: Counter[str] = Counter()
        self._roles: Counter[str] = Counter()
        self._role_rows: dict[str, int] = {}
        self._refused = ""
        self._has_style = True

    def add(self, first: int, batch: Any) -> None:
        """Look at one ``pyarrow.RecordBatch`` whose first row has the number ``first``."""
        import pyarrow.compute as pc

        prompts, models = batch.column(self._key), batch.column("reward_model")
        self._has_style = "style" in parquet_schema.field_names(models.type)
        answers = pc.struct_field(models, "ground_truth")
        if parquet_schema.is_string(answers.type):
            self._note("empty-truth", first, _indices(_blank(answers)))
        never = truths.never_matched(batch.column("data_source"), answers)
        self._note("truth-never-matched", first, _indices(never))
        self.index.add(batch)
        messages = pc.list_flatten(prompts)
        parents = pc.list_parent_indices(prompts)
        broken = self._without_user(first, batch.num_rows, parents, pc.struct_field(messages, "role"))
        contents = pc.struct_field(messages, "content")
        if parquet_schema.is_string(contents.type):
            blank = pc.and_(
                _blank(contents), pc.equal(pc.cast(pc.struct_field(messages, "role"), "string"), "user")
            )
            distinct = _distinct(pc.filter(parents, pc.fill_null(blank, False)))
            self._note("empty-prompt", first, distinct)
            broken[distinct] = True
        self._repeats.add(prompts, messages, contents, broken)
        left = batch.num_rows if self._render_until is None else max(self._render_until - first, 0)
        if self._tokenizer is not None and left:
            self._tokenize(first, prompts.slice(0, left).to_pylist())

    def _without_user(self, first: int, rows: int, parents: Any, roles: Any) -> Any:
        """Count the roles, and return which rows have no message of a user."""
        import numpy as np
        import pyarrow.compute as pc

        roles = pc.cast(roles, "string")
        for entry in pc.value_counts(roles).to_pylist():
            role = str(entry["values"])
            self._roles[role] += entry["counts"]
            if role not in ROLES and role not in self._role_rows:
                places = pc.filter(parents, pc.fill_null(pc.equal(roles, role), False))
                self._role_rows[role] = first + (places[0].as_py() if len(places) else 0)
        asked = pc.filter(parents, pc.fill_null(pc.equal(roles, "user"), False))
        answered = np.zeros(rows, dtype=bool)
        answered[asked.to_numpy(zero_copy_only=False)] = True
        self._note("no-user", first, np.flatnonzero(~answered).tolist())
        return ~answered

    def _tokenize(self, first: int, conversations: list[Any]) -> None:
        texts = self._rendered(first, conversations)
        ids = chat_check.tokens(self._tokenizer, [text or "" for text in texts])
        sizes = [len(row) for row in ids]
        self._tokens.extend(sizes)
        self._note("overlong", first, [row for row, size in enumerate(sizes) if size > self._limit])
        lost = (
            row
            for row, (text, messages) in enumerate(zip(texts, conversations, strict=True))
            if text is not None and not chat_check.survives(messages, text)
        )
        blank = {row - first for row in self._rows.get("empty-prompt", ())}
        self._note("question-lost", first, [row for row in lost if row not in blank])

    def _rendered(self, first: int, conversations: list[Any]) -> list[str | None]:
        try:
            return list(
                self._tokenizer.apply_chat_template(conversations, add_generation_prompt=True, tokenize=False)
            )
        except Exception:  # noqa: BLE001 - a template is a program of the model's author; rows are named below
            return [self._render(first + row, messages) for row, messages in enumerate(conversations)]

    def _render(self, row: int, messages: Any) -> str | None:
        try:
            return str(
                self._tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
            )
        except Exception as error:  # noqa: BLE001 - as above
            self._refused = self._refused or f"{type(error).__name__}: {error}"
            self._note("refused", row, [0])
            return None

    def _note(self, kind: str, first: int, rows: list[int]) -> None:
        if rows:
            self._counts[kind] += len(rows)
            kept = self._rows.setdefault(kind, [])
            kept.extend(first + row for row in rows[: _SHOWN - len(kept)])

    def lengths(self) -> Lengths | None:
        """Return the spread of lengths; none where no tokenizer was given."""
        import numpy as np

        if not self._tokens:
            return None
        sizes = np.frombuffer(self._tokens, dtype=np.uint32)
        shortest, median, p95 = (int(np.percentile(sizes, part, method="lower")) for part in (0, 50, 95))
        row = int(sizes.argmax())
        return Lengths(shortest=shortest, median=median, p95=p95, longest=int(sizes[row]), longest_row=row)

    def findings(self) -> Iterator[Finding]:
        """Everything seen, the most telling first."""
        for kind, (level, what, why, todo) in _MEANINGS.items():
            if kind in self._rows:
                said = {"limit": self._limit, "refused": self._refused}
                yield self._finding(kind, level, what.format(**said), why.format(**said), todo)
        yield from self._unknown_roles()
        yield from self._repeats.findings(path=self._path, prompt_key=self._key)
        if not self._has_style:
            yield Finding(
                id="data-no-style",
                level="warning",
                key=f"{self._path}:reward_model.style",
                what="reward_model has no field 'style'",
                why='verl 0.9.1 does not read it, but its own files have it ("rule" or "model"), and older '
                "versions choose by it",
                todo='add "style": "rule"',
            )

    def _finding(self, kind: str, level: Any, what: str, why: str, todo: str) -> Finding:
        rows, count = self._rows[kind], self._counts[kind]
        more = f" (and {count - len(rows)} more rows)" if count > len(rows) else ""
        column = "reward_model.ground_truth" if "truth" in kind else self._key
        key = f"{self._path}:row {', '.join(map(str, rows))}:{column}"
        return Finding(id=f"data-{kind}", level=level, key=key, what=what + more, why=why, todo=todo)

    def _unknown_roles(self) -> Iterator[Finding]:
        for role, count in self._roles.items():
            if role not in ROLES and role != "None":
                yield Finding(
                    id="data-role",
                    level="warning",
                    key=f"{self._path}:row {self._role_rows[role]}:{self._key}",
                    what=f"{count} messages have the role {role!r}",
                    why="chat templates know system, user, assistant and tool; others are dropped or refused",
                    todo="rename the role, or check the prompt that comes out: --model FOLDER",
                )


_FILTER = "verl drops it where data.filter_overlong_prompts is set and stops at it where it is not"
_GSM8K = (
    "for openai/gsm8k it compares the number after '####' in the response, a text without commas, with "
    "the ground truth as it is: the reward is 0 for every response, unless a function of your own scores it"
)
_MEANINGS: dict[str, tuple[str, str, str, str]] = {
    "question-lost": (
        "fault",
        "the question is lost in the chat template",
        "the model would be trained on a prompt without it",
        "compare the messages with what the model's chat template reads",
    ),
    "refused": (
        "fault",
        "the chat template refuses the prompt",
        "{refused}",
        "many templates want the roles user and assistant in turn, some no system message",
    ),
    "no-user": ("fault", "the prompt has no message of role user", "there is no question in it", "add it"),
    "empty-prompt": ("fault", "a user message is empty", "there is no question in it", "remove these rows"),
    "overlong": (
        "fault",
        "the prompt has more than {limit} tokens after the chat template",
        _FILTER,
        "raise data.max_prompt_length, shorten the prompts, or set data.filter_overlong_prompts=True",
    ),
    "empty-truth": (
        "warning",
        "the ground truth is an empty text",
        "a rule reward compares the response with it",
        "check these rows",
    ),
    "truth-never-matched": (
        "warning",
        "the ground truth is nothing that verl's rule for this data_source can match",
        _GSM8K,
        'write the number alone, as a text: "3", not 3 and not "It is #### 3"',
    ),
}


def _blank(texts: Any) -> Any:
    import pyarrow.compute as pc

    return pc.equal(pc.utf8_length(pc.utf8_trim_whitespace(pc.cast(texts, "large_string"))), 0)


def _indices(mask: Any) -> list[int]:
    import pyarrow.compute as pc

    return list(pc.indices_nonzero(pc.fill_null(mask, False)).to_pylist())


def _distinct(values: Any) -> list[int]:
    return sorted(set(values.to_pylist()))
