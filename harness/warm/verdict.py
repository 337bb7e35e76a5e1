"""What a watch says after each save: one verdict, for people and as one line of JSON."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from harness.console import Output
from harness.evidence.model import Failure, Run


class Verdict(BaseModel):
    """One line of ``verlock watch --json``.

    ``seconds`` are from the save to the verdict; of the first run, from its start. ``rung`` is where it
    ended: the one that failed, else the last. ``run`` is the run folder, null where importing failed.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    number: int
    status: Literal["passed", "failed"]
    rung: str | None
    seconds: float
    changed: list[str]
    anew: bool
    """Whether verl was imported anew for it."""
    exit_code: int
    verified: str | None = None
    failure: Failure | None = None
    run: str | None = None

    def show(self, output: Output) -> None:
        """Print it, flushed: a pipe's reader acts on it."""
        if output.as_json:
            output.json_line(self.model_dump(mode="json", by_alias=True))
            return
        since = f"after the save of {self.changed[0]}" if self.changed else "after the start"
        more = f" and {len(self.changed) - 1} more" if len(self.changed) > 1 else ""
        style = "bold green" if self.status == "passed" else "bold red"
        output.line(
            f"{self.status}: {self.rung or 'before the first rung'}, {self.seconds:.1f} s {since}{more}",
            style=style,
        )
        if self.failure is not None:
            output.line(f"  {self.failure.cause}")
            if self.failure.fix:
                output.line(f"  do: {self.failure.fix}")
        if self.run is not None:
            output.line(f"  record: {self.run}")


def of_run(run: Run) -> tuple[str | None, str | None]:
    """The rung at which it ended, and what was verified there."""
    failed = next((rung for rung in run.rungs if rung.status != "passed"), None)
    last = failed or (run.rungs[-1] if run.rungs else None)
    return (last.name, last.verified) if last else (None, None)
