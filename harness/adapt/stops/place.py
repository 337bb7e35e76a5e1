"""Where to stop: found in the source, checked to be a statement, and compiled in front of it."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from types import CodeType
from typing import Literal, Self

from harness.errors import OverrideError

Tool = Literal["dump", "pdb", "debugpy"]
VARIABLE = "VERLOCK_BREAK"
_WHERE = "--break"
# Found by the interpreter wherever the module's code runs: cloudpickle takes functions out of their module.
_CALL = "__import__('harness.adapt.stops.reached', fromlist=['reached']).reached()"


@dataclass(frozen=True, kw_only=True)
class Place:
    """A line of a file, in the processes whose title holds ``role`` and whose rank is ``rank``."""

    file: str
    line: int
    role: str = ""
    rank: str = ""
    tool: Tool = "dump"

    @classmethod
    def read(cls, text: str) -> Self | None:
        """What a climb passed on in the variable; none where there is no place."""
        return cls(**json.loads(text)) if text else None

    def text(self) -> str:
        """The variable's value."""
        return json.dumps(asdict(self), sort_keys=True)

    def __str__(self) -> str:
        who = f" in {self.role}" if self.role else ""
        return f"{self.file}:{self.line}{who}{f' of rank {self.rank}' if self.rank else ''}"


def find(text: str, tool: Tool, verl: Path, *, here: Path) -> Place:
    """The place that ``FILE:LINE``, ``CLASS`` or ``CLASS.METHOD`` means, with ``@ROLE`` or ``@ROLE:RANK``.

    Args:
        text: what the user wrote. Of a class without a method, the start of its ``__init__``.
        tool: what happens there.
        verl: the package's folder; ``verl/...`` is looked for beside it.
        here: where other files are looked for.

    Raises:
        OverrideError: no such file, class or method, or nothing is executed at that line.
    """
    name, _, who = text.partition("@")
    role, _, rank = who.partition(":")
    file, colon, number = name.rpartition(":")
    if not colon:
        path, line = _named(name, verl)
        return Place(file=str(path), line=line, role=role or "", rank=rank, tool=tool)
    if not number.isdigit():
        raise OverrideError(
            f"{text} is no place", where=_WHERE, todo="write FILE:LINE, CLASS or CLASS.METHOD"
        )
    tried = [Path(file).expanduser(), here / file, verl.parent / file]
    found = next((path for path in tried if path.is_file()), None)
    if found is None:
        raise OverrideError(
            f"no such file: {file}",
            where=_WHERE,
            why=f"looked for in {here} and {verl.parent}",
            todo="write it as in a traceback, or as verl/trainer/...",
        )
    path = found.resolve()
    compiled(path.read_text(encoding="utf-8"), str(path), int(number))
    return Place(file=str(path), line=int(number), role=role, rank=rank, tool=tool)


def _named(name: str, verl: Path) -> tuple[Path, int]:
    """File and first line of a class's method, among verl's files."""
    owner, _, method = name.partition(".")
    others: list[str] = []
    for path in sorted(verl.rglob("*.py")):
        source = path.read_text(encoding="utf-8", errors="replace")
        if f"class {owner}" not in source:
            continue
        for node in ast.walk(ast.parse(source)):
            if not isinstance(node, ast.ClassDef) or node.name != owner:
                continue
            methods = {m.name: m for m in node.body if isinstance(m, ast.FunctionDef | ast.AsyncFunctionDef)}
            wanted = methods.get(method or "__init__") or (
                None if method else next(iter(methods.values()), None)
            )
            if wanted is not None:
                return path.resolve(), _body(wanted)[0].lineno
            others += methods
    raise OverrideError(
        f"verl has no {'method ' if others else 'class '}{name}",
        where=_WHERE,
        why=f"{owner} has {', '.join(sorted(others))}" if others else f"looked for in {verl}",
        todo="write FILE:LINE, CLASS or CLASS.METHOD",
    )


def _body(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.stmt]:
    """What it executes: its docstring is no statement."""
    first = function.body[0]
    documented = ast.get_docstring(function, clean=False) is not None and len(function.body) > 1
    return function.body[1:] if documented and isinstance(first, ast.Expr) else function.body


def compiled(source: str, file: str, line: int) -> CodeType:
    """The module's code with the call in front of the statement at ``line``. Pure.

    Raises:
        OverrideError: no statement begins there.
    """
    tree = ast.parse(source, filename=file)
    if not _put(tree, line):
        near = sorted({node.lineno for body in _bodies(tree) for node in body}, key=lambda n: abs(n - line))
        raise OverrideError(
            "no statement begins at this line",
            where=f"{file}:{line}",
            todo=f"the nearest that do: {', '.join(map(str, sorted(near[:4])))}" if near else None,
        )
    return compile(tree, file, "exec", dont_inherit=True)


def _put(tree: ast.Module, line: int) -> bool:
    for body in _bodies(tree):
        for number, node in enumerate(body):
            if node.lineno == line:
                call = ast.parse(_CALL).body[0]
                # On the line before: a debugger stops where the line changes, and that is to be here.
                for part in ast.walk(call):
                    if isinstance(part, ast.expr | ast.stmt):
                        part.lineno = part.end_lineno = max(1, line - 1)
                        part.col_offset = part.end_col_offset = node.col_offset
                body.insert(number, call)
                return True
    return False


def _bodies(tree: ast.Module) -> Iterator[list[ast.stmt]]:
    """Each list of statements, without docstrings and the imports that must stay first."""
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            body = getattr(node, name, None)
            if isinstance(body, list) and body and isinstance(body[0], ast.stmt):
                yield body if not _must_stay(body[0]) else _Rest(body)


def _must_stay(first: ast.stmt) -> bool:
    future = isinstance(first, ast.ImportFrom) and first.module == "__future__"
    return future or (isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant))


class _Rest(list[ast.stmt]):
    """A body seen without what must stay at its head; an insertion goes into the body itself."""

    def __init__(self, body: list[ast.stmt]) -> None:
        self.whole = body
        self.head = next((n for n, node in enumerate(body) if not _must_stay(node)), len(body))
        super().__init__(body[self.head :])

    def insert(self, index: int, node: ast.stmt) -> None:  # type: ignore[override]
        """Put it into the body."""
        self.whole.insert(self.head + index, node)
