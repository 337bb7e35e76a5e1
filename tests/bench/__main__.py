"""`nox -s bench`: measures side by side, writes docs/bench.json and bench.md, compares with an older run."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Annotated

import case_audit
import case_climb
import case_data
import case_generate
import case_image
import case_ledger
import case_locks
import case_steps
import case_watch
import typer
from document import Document, describe, table
from measure import run, slower
from place import Place

ROOT = Path(__file__).parents[2]
MAKERS = {
    "start": case_climb.cases,
    "watch": case_watch.cases,
    "generate": case_generate.cases,
    "step-tiny": case_steps.tiny,
    "step-smollm2": case_steps.smollm2,
    "ledger": case_ledger.cases,
    "locks": case_locks.cases,
    "audit": case_audit.cases,
    "data": case_data.cases,
    "image": case_image.cases,
}
JSON = ROOT / "docs" / "bench.json"


def main(
    compare: Annotated[Path | None, typer.Option(help="An older JSON; what got slower is listed.")] = None,
    only: Annotated[
        list[str] | None, typer.Option(help=f"Of {', '.join(MAKERS)}; the others are kept.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Where the JSON goes; the table beside it.")] = JSON,
) -> None:
    """Measure all cases, or some of them."""
    unknown = [name for name in only or () if name not in MAKERS]
    if unknown:
        raise typer.BadParameter(f"no such case: {', '.join(unknown)}; there are {', '.join(MAKERS)}")
    old = Document.model_validate_json(compare.read_text(encoding="utf-8")) if compare else None
    kept = Document.model_validate_json(out.read_text(encoding="utf-8")) if only and out.is_file() else None
    document = describe(ROOT)
    failed: list[str] = []
    scratch = Path(tempfile.mkdtemp(prefix="verlock-bench-"))
    try:
        place = Place(root=ROOT, scratch=scratch, tools=ROOT / ".verlock" / "bench")
        for name in only or MAKERS:
            typer.echo(f"{name}")
            try:
                for case in MAKERS[name](place):
                    done = run(case, typer.echo)
                    # As it happens: a bench that was stopped keeps what it measured.
                    document = document.model_copy(update={"results": [*document.results, done]})
                    _write(_joined(kept, document), out)
            except Exception as error:  # noqa: BLE001 - the other cases are measured all the same
                failed.append(f"{name}: {type(error).__name__}: {error}")
                typer.echo(f"  failed: {failed[-1]}")
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    typer.echo(table(_joined(kept, document)))
    worse = list(slower(old.results, document.results)) if old else []
    for line in failed:
        typer.echo(f"not measured: {line}")
    for line in worse:
        typer.echo(f"slower: {line}")
    if worse or failed:
        raise typer.Exit(1)


def _joined(kept: Document | None, document: Document) -> Document:
    """With ``--only``: the older results of the cases that were not measured now, as they were."""
    if kept is None:
        return document
    new = {result.id for result in document.results}
    older = [result for result in kept.results if result.id not in new]
    return document.model_copy(update={"results": [*older, *document.results]})


def _write(document: Document, out: Path) -> None:
    for path, text in (
        (out, document.model_dump_json(indent=2) + "\n"),
        (out.with_suffix(".md"), table(document)),
    ):
        part = path.with_name(f".{path.name}.new")
        part.write_text(text, encoding="utf-8")
        part.replace(path)


if __name__ == "__main__":
    typer.run(main)
