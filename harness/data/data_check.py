"""Is this file what verl reads, in form and in meaning? Everything that is wrong with it, at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from harness.adapt.verls import here
from harness.data import chat_check, file_kind, parquet_check
from harness.data.finding import Finding, of_problems
from harness.data.row_watch import Lengths, RowWatch
from harness.errors import DataError, ModelError

# verl's own default of data.max_prompt_length (trainer/config/data/legacy_data.yaml).
PROMPT_LIMIT = 512


@dataclass(frozen=True, kw_only=True)
class Checked:
    """What was seen of one file."""

    path: Path
    rows: int = 0
    columns: tuple[str, ...] = ()
    data_sources: dict[str, int] = field(default_factory=dict)
    prompt: str | None = None
    lengths: Lengths | None = None
    findings: tuple[Finding, ...] = ()

    def document(self) -> dict[str, Any]:
        """The same for JSON."""
        lengths = asdict(self.lengths) if self.lengths else None
        return vars(self) | {
            "path": str(self.path),
            "columns": list(self.columns),
            "lengths": lengths,
            "findings": [finding.document() for finding in self.findings],
        }


def check(
    path: Path,
    *,
    tokenizer: Any = None,
    limit: int = PROMPT_LIMIT,
    prompt_key: str = "prompt",
    render: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> Checked:
    """Check one Parquet file, streamed; never raises for what the file holds.

    With a ``tokenizer`` every prompt, or the first ``render``, is rendered and its tokens are counted,
    against ``limit``.
    ``progress`` is called with the number of rows so far.
    """
    findings = _template(tokenizer)
    other = file_kind.finding(path, verl=here())
    if other is not None:
        findings.insert(0, other)
        if not file_kind.holds_parquet(path):
            return Checked(path=path, findings=tuple(findings))
    renders = tokenizer if getattr(tokenizer, "chat_template", None) else None
    seen = RowWatch(path=str(path), prompt_key=prompt_key, tokenizer=renders, limit=limit, render=render)

    def watch(first: int, batch: Any) -> None:
        seen.add(first, batch)
        if progress is not None:
            progress(first + batch.num_rows)

    try:
        summary = parquet_check.check(path, prompt_key=prompt_key, watch=watch)
    except DataError as error:
        findings += of_problems(error.problems, kind="data-form")
        return Checked(path=path, lengths=seen.lengths(), findings=(*findings, *_further(seen, findings)))
    prompt = _first_prompt(summary.first, renders, path, limit)
    return Checked(
        path=path,
        rows=summary.rows,
        columns=summary.columns,
        data_sources=summary.data_sources,
        prompt=prompt,
        lengths=seen.lengths(),
        findings=(
            *findings,
            *seen.findings(),
            *seen.index.findings(summary.columns, str(path)),
            *_unrendered(tokenizer, path),
        ),
    )


def _further(seen: RowWatch, known: list[Finding]) -> list[Finding]:
    """What the rows mean, less what their form says already: a row without messages has no user either."""
    formless = any(" has no messages" in f.what or " is null" in f.what for f in known)
    return [f for f in seen.findings() if not (formless and f.id == "data-no-user")]


def _template(tokenizer: Any) -> list[Finding]:
    if tokenizer is None or getattr(tokenizer, "chat_template", None):
        return []
    error = chat_check.no_template(tokenizer)
    return of_problems(error.problems, kind="model-no-template")


def _first_prompt(messages: Any, tokenizer: Any, path: Path, limit: int) -> str | None:
    """One prompt as the model sees it, for the reader; what is wrong with it is found with all rows."""
    if tokenizer is None or not messages:
        return None
    try:
        where = f"{path}:row 0"
        return chat_check.check(messages, tokenizer=tokenizer, max_prompt_length=limit, where=where).text
    except (DataError, ModelError):
        return None


def _unrendered(tokenizer: Any, path: Path) -> list[Finding]:
    if tokenizer is not None:
        return []
    return [
        Finding(
            id="data-not-rendered",
            level="note",
            key=str(path),
            what="no prompt was rendered: without a model there is no chat template and no length",
            todo="give --model FOLDER, or --model tiny for the ladder's own",
        )
    ]
