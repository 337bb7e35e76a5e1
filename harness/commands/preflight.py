"""The user's own training command: judged without running it, then run small."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.commands.common import Json, Verl, go_inside
from harness.console import Output
from harness.profiles.releases import named

if TYPE_CHECKING:
    from harness.ladder.preflight.command_line import Asked
    from harness.ladder.preflight.prepare import Prepared
    from harness.ladder.preflight.static import Inspected


def preflight(
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[-- COMMAND...]",
            help="python -m verl.trainer.main_ppo KEY=VALUE..., or a shell script that ends in it.",
        ),
    ] = None,
    profile: Annotated[str, typer.Option(help="On which profile's environment it is run small.")] = "cpu",
    verl: Verl = None,
    config_path: Annotated[
        str | None, typer.Option(help="A configuration folder, in place of a command.")
    ] = None,
    config_name: Annotated[str | None, typer.Option(help="The file in it.")] = None,
    static: Annotated[bool, typer.Option("--static", help="Only judge; start nothing.")] = False,
    stand_in: Annotated[
        bool,
        typer.Option("--stand-in", help="Data and a model that are not here are no fault: others stand in."),
    ] = False,
    despite: Annotated[
        bool,
        typer.Option(
            "--despite-faults",
            help="Run it small all the same: without what does not compose, with what one value mends.",
        ),
    ] = False,
    first: Annotated[str, typer.Option("--from", help="Lowest rung: ppo-mock, or ppo.")] = "ppo-mock",
    steps: Annotated[int, typer.Option(min=1, help="Training steps of the small run.")] = 2,
    runs: Annotated[Path, typer.Option(help="Where run records go.")] = Path("runs"),
    as_json: Json = False,
) -> None:
    """Find every fault of a training command before it queues, then run it small, up to the ppo rung."""
    profile = named(profile, verl)
    go_inside(profile)
    # As the profile's runs: nothing is asked of a hub.
    os.environ["HF_HUB_OFFLINE"] = "1"
    from harness.data.finding import faults
    from harness.errors import OverrideError, PreflightError
    from harness.ladder.options import ClimbOptions
    from harness.ladder.preflight.mend import mended
    from harness.ladder.preflight.prepare import prepare, problems
    from harness.ladder.preflight.stand_ins import left_open
    from harness.ladder.preflight.static import inspect, standing_in

    output = Output(as_json=as_json)
    asked, kept = _asked(command or [], config_path, config_name)
    found = inspect(asked)
    if stand_in:
        found = standing_in(found)
    document = _document(found, kept)
    if not as_json:
        _tell(output, found, kept)
    wrong = faults(found.findings)
    if static or (wrong and not despite) or found.config is None:
        if wrong and not as_json:
            raise PreflightError(f"faults: {len(wrong)}", todo="correct them; nothing was started")
        left = left_open(found, stand_in=stand_in)
        output.result(
            document | {"not_verified": left, "run": None}, lambda: _tell_verdict(output, found, left)
        )
        raise typer.Exit(PreflightError.exit_code if problems(found) else 0)
    if first not in {"ppo-mock", "ppo"}:
        raise OverrideError(f"--from {first} is unknown", todo="one of: ppo-mock, ppo")
    options = ClimbOptions(profile=profile, first=first, steps=steps, runs=runs)  # type: ignore[arg-type]
    found, mends = mended(found)
    ready = prepare(found, options, stand_in=stand_in, mends=mends)
    if not as_json:
        _tell_changes(output, ready)
    _climb(output, ready, document, wrong=bool(wrong))


def _asked(
    command: list[str], config_path: str | None, config_name: str | None
) -> tuple[Asked, tuple[str, ...]]:
    """The training command, and the calls of a script that were kept from happening."""
    from harness.errors import OverrideError
    from harness.ladder.preflight import script
    from harness.ladder.preflight.command_line import TRAINER, parse

    here = Path.cwd()
    if config_path or config_name:
        words = [f"--config-path={config_path}"] if config_path else []
        words += [f"--config-name={config_name}"] if config_name else []
        return parse(["python", "-m", TRAINER, *words, *command], environ=os.environ, folder=here), ()
    file, rest = _script(command)
    if file is None:
        return parse(command, environ=os.environ, folder=here), ()
    done = script.record(file, rest)
    asked = [one for one in done.asked if one.trains] or list(done.asked)
    if not asked:
        last = done.said.strip().splitlines()[-1:] or ["it said nothing"]
        raise OverrideError(
            "the script starts no Python program",
            where=str(file),
            why=f"it ended with exit code {done.exit_code}; its last line: {last[0][:300]}",
            todo="give the variables that it wants: NAME=value verlock preflight -- SCRIPT",
        )
    return asked[-1], done.kept


def _script(command: list[str]) -> tuple[Path | None, list[str]]:
    """A shell script at the head of the command, or behind ``bash``, and its arguments."""
    rest = command[1:] if command and command[0] in {"bash", "sh"} else command
    if rest and (rest[0].endswith(".sh") or rest is not command):
        return Path(rest[0]), rest[1:]
    return None, []


def _document(found: Inspected, kept: tuple[str, ...]) -> dict[str, Any]:
    return {
        "module": found.asked.module,
        "words": list(found.asked.words),
        "kept_from_happening": list(kept),
        "findings": [finding.document() for finding in found.findings],
    }


def _tell(output: Output, found: Inspected, kept: tuple[str, ...]) -> None:
    from harness.commands.data import tell_findings

    for call in kept:
        output.line(f"the script would have called {call}: it did not happen")
    tell_findings(output, found.findings)


def _tell_verdict(output: Output, found: Inspected, left: list[str]) -> None:
    """What ``--static`` came to, and what it cannot know."""
    _tell_open(output, left)
    warnings = sum(finding.level == "warning" for finding in found.findings)
    rest = "nothing was started: without --static it is run small, up to the ppo rung"
    output.line(f"no faults; warnings: {warnings}; {rest}", style="bold green")


def _tell_changes(output: Output, ready: Prepared) -> None:
    for change in ready.changes:
        output.line(f"  changed  {change.key}: {change.old!r} to {change.new!r} ({change.why})")
    _tell_open(output, ready.not_verified)


def _tell_open(output: Output, texts: Iterable[str]) -> None:
    for text in texts:
        output.line(f"  not verified: {text}", style="yellow")


def _climb(output: Output, ready: Prepared, document: dict[str, Any], *, wrong: bool) -> None:
    from harness.errors import PreflightError
    from harness.evidence import report
    from harness.ladder.climb import climb, this_command
    from harness.ladder.rungs import rung

    def complete(folder: Path) -> None:
        report.write(folder)
        output.line(f"record: {folder} (run.json, report.html, metrics.jsonl, output.log)")

    options = ready.options
    steps = [(name, rung(name)) for name in options.rungs]
    done = climb(options, steps, output, this_command(), complete)
    changed = [change.document() for change in ready.changes]
    run = {"folder": str(options.runs / done.id), **done.model_dump(mode="json", by_alias=True)}
    output.result(
        document | {"changes": changed, "not_verified": list(ready.not_verified), "run": run},
        lambda: output.line(
            f"passed: {len(ready.changes)} keys changed for this machine", style="bold green"
        ),
    )
    if wrong:
        raise typer.Exit(PreflightError.exit_code)
