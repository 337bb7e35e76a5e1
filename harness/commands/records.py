"""What is done with a record: run again, pack for others, make its page, and say what to run next."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.commands import again
from harness.commands.common import Json
from harness.console import Output

if TYPE_CHECKING:
    from harness.evidence.replay import Replayed

Recorded = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, such as runs/latest.")]


def replay(
    context: typer.Context,
    run: Recorded,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Also in another environment or with files that were changed.")
    ] = False,
    runs: Annotated[
        Path | None, typer.Option(help="Where the new record goes; beside the old one if not given.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Run a recorded command again in the recorded environment; exit 40 at the first thing that differs."""
    from harness.errors import NotReproducedError
    from harness.evidence import again as climbing
    from harness.evidence import replay as room
    from harness.evidence.model import load

    output = Output(as_json=as_json)
    recorded = run.resolve()
    found = load(recorded)
    words = room.words_of(found)
    problems = room.differences(found, _image_here(found.profile) if found.image else None)
    if not anyway:
        room.refuse(problems)
    where = (runs or recorded.parent).absolute()
    said = _words(context, words, where, image=found.image is not None)
    output.line(f"running again: verlock {' '.join(said)}")
    outside = None if found.image else found.given
    replayed = climbing.climb(
        said,
        where,
        folder=Path(outside.folder) if outside else None,
        variables=outside.variables if outside else None,
        checkout=climbing.source(found),
    )
    room.mark(replayed, of=found)
    told = room.judge(recorded, replayed, problems)
    error = room.failed(told)
    if error is not None and not as_json:
        raise error
    output.result(told.model_dump(mode="json"), lambda: _tell(output, told))
    if error is not None:
        raise typer.Exit(NotReproducedError.exit_code)


def _words(context: typer.Context, recorded: list[str], runs: Path, *, image: bool) -> list[str]:
    """The recorded command with its record elsewhere."""
    root = context.find_root()
    name, *arguments = recorded
    command = root.command.get_command(root, name)  # type: ignore[attr-defined]
    with command.make_context(name, list(arguments), parent=root) as parsed:
        changes = {"runs": runs} | ({"image": True} if image else {})
        return again.words(parsed, changes, without={"as_json"})


def _image_here(profile: str) -> str | None:
    from harness.build.image import built
    from harness.errors import ImageError
    from harness.profiles import load

    try:
        return built.read(load(profile)).manifest
    except ImageError:
        return None


def _tell(output: Output, told: Replayed) -> None:
    compared = told.compared
    failure = f" with {told.failure}" if told.failure else ""
    metrics = f" and {compared['values']} metrics of {compared['steps']} steps" if compared["steps"] else ""
    output.line(
        f"reproduced: {told.status}{failure}; what {compared['rungs']} rungs measured{metrics} "
        "is the same to the last bit",
        style="bold green",
    )
    for text in (*told.despite, *told.notes):
        output.line(f"  although {text}")
    output.line(f"record: {told.replay}")


def bundle(
    run: Recorded,
    out: Annotated[
        Path | None, typer.Option(help="The archive; verlock-RUN.tar.gz here if not given.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Pack a record for a bug report, without secrets, names, addresses and home paths."""
    from harness.evidence import parcel

    output = Output(as_json=as_json)
    folder = run.resolve()
    target = out or Path(f"verlock-{folder.name}.tar.gz")
    contents = parcel.pack(folder, target)
    total = contents.added()

    def human() -> None:
        for name, counts in contents.removed.items():
            output.line(f"replaced {name}: {', '.join(f'{count} {kind}' for kind, count in counts.items())}")
        for name, why in contents.left_out.items():
            output.line(f"left out {name}: {why}")
        output.line(
            f"{target}: {len(contents.files)} files; replaced {sum(total.values())} "
            f"({', '.join(f'{count} {kind}' for kind, count in total.items()) or 'nothing'})",
            style="bold",
        )
        output.line("look into it before you send it: a name that only you know is secret is still in it")

    output.result({"bundle": str(target), "total": total, **contents.model_dump(mode="json")}, human)


def report(run: Recorded, as_json: Json = False) -> None:
    """Make report.html of any record, also of a run that was killed, and print its path."""
    from harness.evidence import report as room
    from harness.evidence.documents import Reported
    from harness.evidence.model import load

    output = Output(as_json=as_json)
    folder = run.resolve()
    found = load(folder)
    page = room.write(folder)
    document = Reported(run=found.id, status=found.status, report=str(page))
    output.result(document.model_dump(mode="json"), lambda: output.line(str(page)))


def next_(
    task: Annotated[
        str | None, typer.Option(help="local, verl (a checkout), failure or handoff; by the newest record.")
    ] = None,
    profile: Annotated[
        str | None, typer.Option(help="Hardware profile; the newest record's if not given.")
    ] = None,
    runs: Annotated[Path, typer.Option(help="Where the records are.")] = Path("runs"),
    as_json: Json = False,
) -> None:
    """Say what to run next and why, with the task's checklist ticked by the records."""
    from typing import get_args

    from harness.errors import UsageError
    from harness.evidence import next_step
    from harness.evidence.checklist import Task

    if task is not None and task not in get_args(Task):
        raise UsageError(f"--task {task} is unknown", todo=f"one of: {', '.join(get_args(Task))}")
    output = Output(as_json=as_json)
    found = next_step.advise(runs, task=task, profile=profile)  # type: ignore[arg-type]

    def human() -> None:
        output.line(f"task {found.task}, profile {found.profile}")
        for tick in found.checklist:
            proof = tick.evidence or (f"earlier: {tick.earlier}" if tick.earlier else tick.command)
            output.line(
                f"  [{'x' if tick.done else ' '}] {tick.name:12} {tick.text}  ({proof})",
                style="green" if tick.done else None,
            )
        output.line(f"next  {found.command}", style="bold")
        output.line(f"why   {found.why}")
        if found.task == "failure" and task is None:
            output.line("      only the same command, passed, answers a failure; --task local leaves it")
        for name in found.unreadable:
            output.line(f"      {name} cannot be read and was left out", style="yellow")

    output.result(found.model_dump(mode="json"), human)
