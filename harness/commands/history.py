"""Which commit of verl did it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.commands.common import Json
from harness.console import Output
from harness.errors import UsageError

if TYPE_CHECKING:
    from harness.diagnose.bisect import Bisected

_OURS = ("--verl-source", "--runs", "--json")


def bisect(
    span: Annotated[str, typer.Argument(metavar="GOOD..BAD", help="Two commits, branches or tags.")],
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[-- CLIMB WORDS...]", help="What follows `verlock climb`.")
    ] = None,
    verl_source: Annotated[
        Path, typer.Option(help="The verl checkout; it is read and never written to.")
    ] = Path(),
    metric: Annotated[
        str | None, typer.Option(help="Look at this metric alone, such as actor/pg_loss.")
    ] = None,
    runs: Annotated[Path, typer.Option(help="Where the records of the runs go.")] = Path("runs"),
    as_json: Json = False,
) -> None:
    """Name the first commit of a verl checkout with which a metric changes or a rung breaks."""
    from harness.diagnose.bisect import Bisection, Tried
    from harness.diagnose.commits import Repository
    from harness.evidence import again, outcome

    output = Output(as_json=as_json)
    asked = words or []
    if taken := [word for word in asked if word.split("=")[0] in _OURS]:
        raise UsageError(f"{', '.join(taken)} among the climb's words", todo="bisect gives them itself")
    repository = Repository(path=verl_source.expanduser().resolve())
    where = runs.absolute()
    with tempfile.TemporaryDirectory(prefix="verlock-bisect-") as scratch:
        checkout = Path(scratch) / "verl-checkout"

        def run(sha: str, last: str | None) -> Tried:
            repository.lay_out(sha, checkout)
            folder = again.climb(_words(asked, checkout, where, last), where, checkout=checkout)
            return Tried(folder=folder, outcome=outcome.read(folder))

        found = Bisection(repository=repository, run=run, tell=output.line, metric=metric).locate(span)
    output.result(found.model_dump(mode="json"), lambda: _tell(output, found))


def _words(asked: list[str], checkout: Path, runs: Path, last: str | None) -> list[str]:
    """The climb with a commit; never higher than the rung in which the ends part."""
    from harness.evidence import words

    own = [f"--verl-source={checkout}", f"--runs={runs}"]
    if last is not None and "--learn" not in words.parts(asked)[0]:
        asked = words.without(asked, {"--to"}, {"--full"})
        own.append(f"--to={last}")
    options, rest = words.parts(asked)
    return ["climb", *own, *options, *rest]


def _tell(output: Output, found: Bisected) -> None:
    if found.commit is None:
        output.line(f"one of {len(found.suspects)} commits, which could not be judged:", style="bold")
        for sha in found.suspects:
            output.line(f"         {sha}")
    else:
        output.line(f"commit   {found.commit}", style="bold")
        output.line(f"         {found.title} ({found.author}, {found.date})")
    output.line(f"changes  {found.parting.line()}")
    output.line(f"good     {found.good_run}")
    output.line(f"bad      {found.bad_run}")
    output.line(f"made     {found.runs} runs for {found.commits} commits")
