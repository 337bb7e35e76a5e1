"""Watches a trainer step by step, and puts what the rules of health find into the record."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from harness.console import Output
from harness.errors import RecordError
from harness.evidence import events
from harness.evidence.health import points, rules, samples, survived
from harness.evidence.health.gpus import Gpus
from harness.evidence.health.memory import MEASURE, Memory
from harness.evidence.health.rules import Terms
from harness.evidence.model import Finding
from harness.evidence.record import RunRecord

_STEP = re.compile(r"\bstep:(\d+) - ")
# verl 0.9.1, workers/engine/fsdp/transformer_impl.py, optimizer_step: printed, and nothing else happens.
_SKIPPED = "grad_norm is not finite"


class StepWatch:
    """Reads the trainer's output as it comes; at the end of each step notes what verl does not log."""

    def __init__(self, run_id: str, rung: str, *, on_gpu: bool = False) -> None:
        """``rung`` names the trainer run in the events; ``on_gpu``: whether to look for GPUs at all."""
        self._memory = Memory(run_id)
        self._gpus = Gpus() if on_gpu else Gpus(bindings=())
        self._rung = rung
        self._skipped = False
        self.survived: dict[str, Finding] = {}
        """What was said once and in passing, by id."""

    def __enter__(self) -> Self:
        """Watch what is read between two steps too."""
        self._gpus.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        """Watch no more."""
        self._gpus.__exit__()

    def line(self, line: str) -> int | None:
        """Take one line; returns the step that ends with it, if one does."""
        self._skipped |= _SKIPPED in line
        sign = survived.of_line(line, self._rung)
        if sign is not None:
            self.survived.setdefault(sign.id, sign)
        found = _STEP.search(line)
        if found is None:
            return None
        step = int(found[1])
        used = dict(self._memory.read())
        events.emit(points.MEMORY_EVENT, rung=self._rung, step=step, bytes=used, measure=MEASURE)
        if seen := self._gpus.read():
            events.emit(points.GPU_EVENT, rung=self._rung, step=step, gpus=seen)
        if self._skipped:
            events.emit(points.SKIPPED_EVENT, rung=self._rung, step=step)
        self._skipped = False
        return step


def settings(folder: Path) -> dict[str, object]:
    """Let verl write each step's responses with their scores below ``folder``."""
    return {
        "trainer.rollout_data_dir": str(folder / samples.FOLDERS["training"]),
        "trainer.validation_data_dir": str(folder / samples.FOLDERS["validation"]),
    }


def judge(
    record: RunRecord, out: Output, folder: Path, happened: Sequence[Mapping[str, Any]], terms: Terms
) -> None:
    """Evaluate the trainer run in ``folder``, which may have failed; record and print what is found."""
    try:
        seen = points.read(folder, happened)
    except RecordError as error:  # metrics that cannot be read are no reason to hide how the run ended
        out.line(f"  {terms.rung}: no rules of health: {error}")
        return
    tell(record, out, rules.evaluate(seen, terms))


def tell(record: RunRecord, out: Output, found: Sequence[Finding]) -> None:
    """Put findings into the record and on the console."""
    if not found:
        return
    record.update(findings=[*record.run.findings, *found])
    for finding in found:
        at = f" (step {finding.step})" if finding.step is not None else ""
        out.line(f"  warning {finding.id}{at}: {finding.what}", style="yellow")
        out.line(f"          why: {finding.why}")
        out.line(f"          do:  {finding.todo}")
