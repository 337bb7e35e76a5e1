"""Data files: are they what verl reads, and made from what people have."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.commands.common import Json, go_inside
from harness.console import Output

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.data.data_check import Checked
    from harness.data.finding import Finding

app = typer.Typer(help="Check a data file against what verl reads, or make one.", no_args_is_help=True)
_STYLES = {"fault": "bold red", "warning": "yellow", "note": "dim"}
_TOLD_EVERY = 200_000


@app.command()
def check(
    file: Annotated[Path, typer.Argument(help="A Parquet file for data.train_files.")],
    model: Annotated[
        str | None, typer.Option(help="Render every prompt with its chat template: tiny, or a model folder.")
    ] = None,
    max_prompt_length: Annotated[int, typer.Option(min=1, help="data.max_prompt_length, in tokens.")] = 512,
    prompt_key: Annotated[str, typer.Option(help="data.prompt_key.")] = "prompt",
    profile: Annotated[str, typer.Option(help="Whose environment reads the file.")] = "cpu",
    as_json: Json = False,
) -> None:
    """Check form and meaning of a data file, row by row, without training."""
    go_inside(profile)
    from harness.data import data_check, model_check
    from harness.data.finding import faults
    from harness.errors import DataError

    output = Output(as_json=as_json)
    found = data_check.check(
        file,
        tokenizer=model_check.tokenizer_of(model) if model else None,
        limit=max_prompt_length,
        prompt_key=prompt_key,
        progress=_progress(output, "checked"),
    )
    output.result(found.document(), lambda: _tell(output, found))
    if faults(found.findings):
        raise typer.Exit(DataError.exit_code)


@app.command()
def convert(
    source: Annotated[
        Path,
        typer.Argument(metavar="IN", help="JSONL, CSV, TSV, Parquet, or a folder that `datasets` saved."),
    ],
    target: Annotated[Path, typer.Argument(metavar="OUT", help="The Parquet file to write.")],
    layout: Annotated[str, typer.Option(help="auto, gsm8k, flat (prompt and response) or verl.")] = "auto",
    prompt: Annotated[str | None, typer.Option(help="The column with the question.")] = None,
    truth: Annotated[str | None, typer.Option(help="The column with the right answer.")] = None,
    data_source: Annotated[
        str | None, typer.Option(help="Names the reward's rule, such as openai/gsm8k.")
    ] = None,
    split: Annotated[str | None, typer.Option(help="Of a saved data set; kept in extra_info.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace OUT if it is there.")] = False,
    profile: Annotated[str, typer.Option(help="Whose environment does it.")] = "cpu",
    as_json: Json = False,
) -> None:
    """Make a Parquet file that verl reads; rows that cannot be read are all named, and nothing is written."""
    go_inside(profile)
    from harness.data.convert import Wanted
    from harness.data.convert import convert as run
    from harness.data.layouts import known_layout

    output = Output(as_json=as_json)
    wanted = Wanted(
        layout=known_layout(layout), prompt=prompt, truth=truth, data_source=data_source, split=split
    )
    done = run(source, target, wanted, force=force, progress=_progress(output, "converted"))
    output.result(
        {"source": str(source), "target": str(target), "rows": done.rows, "layout": done.layout}
        | {"left_out": list(done.left_out)},
        lambda: _say(output, done.rows, target, done.layout, done.left_out),
    )


def _say(output: Output, rows: int, target: Path, layout: str, left_out: tuple[str, ...]) -> None:
    output.line(f"{rows} rows of layout {layout} written to {target}")
    if left_out:
        names = ", ".join(left_out)
        output.line(
            f"left out: {names}; verl reads none of it: what your reward needs belongs into extra_info"
        )


def _progress(output: Output, word: str) -> Callable[[int], None]:
    told = 0

    def show(rows: int) -> None:
        nonlocal told
        told = min(told, rows)  # a second pass counts from the start
        if rows - told >= _TOLD_EVERY:
            told = rows
            output.line(f"  {word} {rows} rows")

    return show


def tell_findings(output: Output, findings: tuple[Finding, ...] | list[Finding]) -> None:
    """Each finding with its place, reason and remedy, the faults first."""
    order = {level: number for number, level in enumerate(_STYLES)}
    for finding in sorted(findings, key=lambda finding: order[finding.level]):
        first, *rest = finding.problem.lines()
        output.line(f"{finding.level}: {first}", style=_STYLES[finding.level])
        for text in rest:
            output.line(text)


def _tell(output: Output, found: Checked) -> None:
    tell_findings(output, found.findings)
    if found.prompt is not None:
        output.line(f"the first prompt, as the model sees it: {found.prompt!r}")
    output.line(_summary(found), style="bold")


def _summary(found: Any) -> str:
    from harness.data.finding import faults

    sources = ", ".join(f"{name} ({count})" for name, count in found.data_sources.items())
    parts = [f"{found.rows} rows", f"data_source {sources}"] if found.rows else []
    if found.lengths:
        n = found.lengths
        parts.append(f"tokens {n.shortest} to {n.longest}, median {n.median}, 95 % below {n.p95}")
    count = len(faults(found.findings))
    return "; ".join([*parts, f"faults: {count}"])
