"""What an error of verlock's says: its problems, class and scope. Those of each failure are in errors.py.

An error says what is wrong, where (``file:line:key``), why, and what to do. Several problems of one
kind are collected and reported together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

FailureClass = Literal["config", "data", "model-logic", "backend", "distributed", "resource", "environment"]
CLASSES: tuple[FailureClass, ...] = get_args(FailureClass)
Scope = Literal["local-only", "general"]


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One thing that is wrong. ``where`` is ``file:line:key`` as far as each part is known."""

    what: str
    where: str | None = None
    why: str | None = None
    todo: str | None = None

    def lines(self) -> list[str]:
        """The problem for people: the first line stands alone, the rest explain it."""
        head = f"{self.where}: {self.what}" if self.where else self.what
        return [
            head,
            *(f"  why: {self.why}" for _ in [0] if self.why),
            *(f"  do:  {self.todo}" for _ in [0] if self.todo),
        ]


class VerlockError(Exception):
    """Base of all errors that are reported without a traceback."""

    exit_code: ClassVar[int] = 1
    # Of the error's type; a diagnosis sets them on the error itself.
    failure_class: FailureClass = "config"
    scope: Scope = "general"
    also: FailureClass | None = None
    signature: str | None = None
    """What the failure is called, where more is known than the error's type."""
    run: str | None = None
    """The run folder whose record tells more, where there is one."""

    def __init__(
        self,
        *problems: Problem | str,
        where: str | None = None,
        why: str | None = None,
        todo: str | None = None,
    ) -> None:
        """Take whole problems, or one sentence with its ``where``, ``why`` and ``todo``."""
        self.problems: tuple[Problem, ...] = tuple(
            p if isinstance(p, Problem) else Problem(what=p, where=where, why=why, todo=todo)
            for p in problems
        )
        super().__init__("\n".join(line for p in self.problems for line in p.lines()))
