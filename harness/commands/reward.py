"""Reward functions: tried as verl calls them, before a run depends on them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, get_args

import typer

from harness.commands.common import Json, go_inside
from harness.console import Output

app = typer.Typer(help="Try a reward function as verl will call it.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Keep ``try`` a command of its own, also while it is the only one."""


@app.command(name="try")
def attempt(
    reward: Annotated[str, typer.Argument(metavar="PATH:FUNCTION", help="The reward function.")],
    data: Annotated[Path, typer.Option(help="A Parquet file whose rows it is called with.")],
    n: Annotated[int, typer.Option(min=1, max=4096, help="How many rows.")] = 8,
    manager: Annotated[str, typer.Option(help="verl's reward manager: naive, dapo or batch.")] = "naive",
    model: Annotated[str, typer.Option(help="Writes the generated responses: tiny, or a folder.")] = "tiny",
    seconds: Annotated[float, typer.Option(min=0.1, help="The longest that one call may take.")] = 10.0,
    profile: Annotated[str, typer.Option(help="Whose environment calls it.")] = "cpu",
    as_json: Json = False,
) -> None:
    """Score right, empty, generated and adversarial responses twice; show scores, times and every fault."""
    go_inside(profile)
    from harness.commands.data import tell_findings
    from harness.data.finding import faults
    from harness.errors import OverrideError, RungFailedError
    from harness.ladder import reward_calls
    from harness.ladder.reward_try import Manager, Trial, run

    output = Output(as_json=as_json)
    if manager not in get_args(Manager):
        raise OverrideError(f"--manager {manager} is unknown", todo=f"one of: {', '.join(get_args(Manager))}")
    trial = Trial(reward=reward, data=data, rows=n, manager=manager, model=model, seconds=seconds)  # type: ignore[arg-type]
    tried = run(trial, output.line)
    calls = tried.calls
    found = [tried.finding] if tried.finding else reward_calls.evaluate(calls, reward=reward, manager=manager)
    shown = reward_calls.document(calls)

    def human() -> None:
        for kind, spread in shown["scores"].items():
            low, mean, high = (f"{spread[key]:8.3f}" for key in ("min", "mean", "max"))
            output.line(f"  {kind:26} n={spread['n']:<4} {low} {mean} {high}")
        if shown["seconds_per_call"]:
            times = shown["seconds_per_call"]
            output.line(
                f"  a call takes {times['median'] * 1000:.2f} ms, at most {times['longest'] * 1000:.1f} ms"
            )
        tell_findings(output, found)
        scored = f"{len(calls)} responses tried" if calls else "it was not called"
        output.line(f"{scored}; faults: {len(faults(found))}", style="bold")

    output.result({**shown, "findings": [finding.document() for finding in found]}, human)
    if faults(found):
        raise typer.Exit(RungFailedError.exit_code)
