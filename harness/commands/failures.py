"""Why a run failed, from its files alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.commands.common import Json
from harness.console import Output
from harness.errors import CLASSES, UsageError

if TYPE_CHECKING:
    from harness.diagnose.diagnosis import Diagnosis


_UNKNOWN = "no signature knows this failure; --save-signature keeps it once you know"


def diagnose(
    logs: Annotated[
        list[Path], typer.Argument(metavar="LOG...", help="Log files of one run, or its run folder.")
    ],
    profile: Annotated[
        str | None, typer.Option(help="Profile of the machine that failed: what it has decides some causes.")
    ] = None,
    here: Annotated[bool, typer.Option("--here", help="It failed on this machine: use its facts.")] = False,
    project: Annotated[
        Path, typer.Option(help="Where verlock-signatures.yaml is, here or in a folder above.")
    ] = Path(),
    save_signature: Annotated[
        str | None, typer.Option(metavar="NAME", help="Keep this failure in verlock-signatures.yaml.")
    ] = None,
    failure_class: Annotated[
        str | None, typer.Option("--class", help=f"With --save-signature: {', '.join(CLASSES)}.")
    ] = None,
    cause: Annotated[str | None, typer.Option(help="With --save-signature: one sentence.")] = None,
    fix: Annotated[str | None, typer.Option(help="With --save-signature: one sentence.")] = None,
    scope: Annotated[str, typer.Option(help="With --save-signature: general or local-only.")] = "general",
    pattern: Annotated[
        str | None, typer.Option(help="With --save-signature; made from the cause if not given.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Say what broke, of which class it is, whether it is local, and what to do."""
    from harness.diagnose import diagnose as room
    from harness.diagnose.host import here as this_machine

    output = Output(as_json=as_json)
    told = room.diagnose(logs, profile=profile, given=this_machine() if here else None, project=project)
    document = told.model_dump(mode="json", by_alias=True)
    if save_signature is not None:
        given = {"class": failure_class, "cause": cause, "fix": fix}
        fields = {"id": save_signature, "scope": scope, **given}
        document["saved"] = str(_save(fields, pattern, told, logs, project))
    output.result(document, lambda: _tell(output, document))


def _save(
    fields: dict[str, Any], pattern: str | None, told: Diagnosis, logs: list[Path], project: Path
) -> Path:
    from harness.diagnose.save import pattern_of, save

    missing = [f"--{name}" for name, value in fields.items() if value is None]
    if missing:
        raise UsageError(
            f"--save-signature also needs {', '.join(missing)}",
            why="a signature that does not say what to do helps nobody",
            todo="give them, each as one sentence of 8 characters or more; --class is one word of its help",
        )
    message = told.raised.text
    fields |= {"patterns": [pattern or pattern_of(message)], "evidence": [f"seen in {logs[0].name}"]}
    return save(fields, message, project, told=told.signature)


def _tell(output: Output, told: dict[str, Any]) -> None:
    also = f" (also {told['also']})" if told["also"] else ""
    known = told["signature"] != "unknown"
    output.line(f"class  {told['class']}{also}; {told['scope']}", style="bold")
    if told["judged_by"]:
        output.line(f"       the class only, because {told['judged_by']}; no signature knows the cause")
    output.line(f"cause  {told['cause']}")
    raised = told["raised"]
    if known:
        output.line(f"said   {raised['text'].splitlines()[0]}")
    if told["file"]:
        output.line(f"where  {told['file']}:{told['line']}")
    if raised["log"]:
        worker = f", {raised['worker']}" if raised["worker"] else ""
        line = f":{raised['log_line']}" if raised["log_line"] else ""
        output.line(f"log    {raised['log']}{line}{worker}")
    unknown = "it is known from now on" if told.get("saved") else _UNKNOWN
    output.line(f"fix    {told['fix'] or unknown}", style="green" if known else None)
    output.line(f"sure   {told['sure']}; signature {told['signature']}")
    for rival in told["rivals"]:
        output.line(f"       or {rival}: --profile or --here would decide")
    if told.get("saved"):
        output.line(f"saved  {told['saved']}")


def diff(
    a: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, such as runs/latest.")],
    b: Annotated[Path, typer.Argument(metavar="RUN", help="Another.")],
    as_json: Json = False,
) -> None:
    """Say what differs between two runs: settings, lock, patches, configuration, outcome, metrics."""
    from harness.diagnose.diff import compare, read
    from harness.diagnose.documents import Diffed

    output = Output(as_json=as_json)
    ours, theirs = read(a), read(b)
    document = Diffed.of(ours, theirs, compare(ours, theirs)).model_dump(mode="json")
    output.result(document, lambda: _show(output, document))


def _show(output: Output, found: dict[str, Any]) -> None:
    for title, name in (("changed", "causes"), ("outcome", "outcome"), ("config", "config")):
        for change in found[name]:
            kind = f"{change['kind']} " if name == "causes" else ""
            output.line(f"{title:8} {kind}{change['key']}: {change['a']} -> {change['b']}")
    first = found["metrics"]
    if first:
        output.line(
            f"metrics  first differ at step {first['step']}, {first['key']}: {first['a']} -> {first['b']}"
        )
    elif found["steps"] == [0, 0]:
        output.line("metrics  neither run has any")
    else:
        output.line("metrics  the same to the last bit")
    if not found["causes"]:
        output.line("changed  nothing")
    if found["warning"]:
        output.line(f"warning  {found['warning']}", style="yellow")


def localise(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN | -- CLIMB WORDS...", help="A failed run, or what follows `verlock climb`."
        ),
    ],
    runs: Annotated[Path, typer.Option(help="Where the records of the runs go.")] = Path("runs"),
    as_json: Json = False,
) -> None:
    """Name the boundary with which a failure comes and goes, with two runs that differ in it alone."""
    from harness.diagnose.documents import Localised
    from harness.diagnose.localise import Localiser, asked, climb

    output = Output(as_json=as_json)
    folder = asked(words)
    if folder is None:
        output.line(f"climbing once: verlock climb {' '.join(words)}")
        folder = climb(words, runs)
    found = Localiser(failing=folder.resolve(), runs=runs, tell=output.line).locate()

    def human() -> None:
        if found.boundary is None:
            output.line(
                "boundary none: it fails with everything minimal; the environment or verl itself",
                style="bold",
            )
        else:
            output.line(f"boundary {found.boundary}", style="bold")
            output.line(f"passes   {found.passing}")
        output.line(f"fails    {found.failing}")
        output.line(f"made     {len(found.made)} runs for {len(found.of)} boundaries")

    output.result(Localised.by(found).model_dump(mode="json"), human)
