"""Why a run failed, from its files alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from harness.commands.common import Json
from harness.console import Output
from harness.errors import UsageError


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
    failure_class: Annotated[str | None, typer.Option("--class", help="With --save-signature.")] = None,
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
        document["saved"] = str(_save(fields, pattern, told.raised.text, logs, project))
    output.result(document, lambda: _tell(output, document))


def _save(fields: dict[str, Any], pattern: str | None, message: str, logs: list[Path], project: Path) -> Path:
    from harness.diagnose.save import pattern_of, save

    missing = [f"--{name}" for name, value in fields.items() if value is None]
    if missing:
        raise UsageError(
            f"--save-signature also needs {', '.join(missing)}",
            why="a signature that does not say what to do helps nobody",
            todo="give them, each as one sentence; --class is one of the design's seven words",
        )
    fields |= {"patterns": [pattern or pattern_of(message)], "evidence": [f"seen in {logs[0].name}"]}
    return save(fields, message, project)


def _tell(output: Output, told: dict[str, Any]) -> None:
    also = f" (also {told['also']})" if told["also"] else ""
    known = told["signature"] != "unknown"
    output.line(f"class  {told['class']}{also}; {told['scope']}", style="bold")
    output.line(f"cause  {told['cause']}")
    raised = told["raised"]
    if known:
        output.line(f"said   {raised['text'].splitlines()[0]}")
    if told["file"]:
        output.line(f"where  {told['file']}:{told['line']}")
    if raised["log"]:
        worker = f", {raised['worker']}" if raised["worker"] else ""
        output.line(f"log    {raised['log']}:{raised['log_line']}{worker}")
    fix = told["fix"] or "no signature knows this failure; --save-signature keeps it once you know"
    output.line(f"fix    {fix}", style="green" if known else None)
    output.line(f"sure   {told['sure']}; signature {told['signature']}")
    for rival in told["rivals"]:
        output.line(f"       or {rival}: --profile or --here would decide")
    if told.get("saved"):
        output.line(f"saved  {told['saved']}")
