"""The piece of verl that a patch rests on, and the verdict whether it is still as it was.

Source is compared after a round trip through ``ast``: comments, line breaks and quotes do not count.
An anchor holds single expressions, never whole functions, so that a change elsewhere in the function
does not make a patch unfit.
"""

from __future__ import annotations

import ast
import difflib
import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Literal

Fit = Literal["fit", "not needed", "unfit"]


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """``difference`` says, for an unfit anchor, what was expected and what is there."""

    fit: Fit
    difference: str = ""


def normalised(source: str) -> str:
    """The source as ``ast`` writes it, without docstrings or comments."""
    tree = ast.parse(textwrap.dedent(source))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and ast.get_docstring(
            node
        ):
            node.body = node.body[1:] or [ast.Pass()]
    return ast.unparse(tree)


@dataclass(frozen=True, kw_only=True)
class Anchor:
    """``fragments`` must all stand in ``target`` (a function's qualified name within the module).

    ``fixed`` looks at the normalised source and says whether upstream no longer has the fault.
    """

    target: str
    fragments: tuple[str, ...]
    fixed: Callable[[str], bool]

    def function(self, module: ModuleType) -> Callable[..., object]:
        """The anchored function; ``AttributeError`` if it is gone."""
        found: object = module
        for part in self.target.split("."):
            found = getattr(found, part)
        if not callable(found):
            message = f"{module.__name__}.{self.target} is not a function"
            raise AttributeError(message)
        return found

    def check(self, module: ModuleType) -> Verdict:
        """Compare the module's code with the anchor."""
        try:
            source = normalised(inspect.getsource(self.function(module)))
        except AttributeError as error:
            return self._gone(module.__name__, str(error))
        return self._judged(source)

    def check_source(self, text: str, module: str) -> Verdict:
        """Compare the source of a module, which need not be importable here, with the anchor."""
        node: ast.AST | None = ast.parse(text)
        for part in self.target.split("."):
            inside = ast.iter_child_nodes(node) if node is not None else iter(())
            node = next((child for child in inside if getattr(child, "name", None) == part), None)
        if node is None:
            return self._gone(module, "the source does not define it")
        return self._judged(normalised(ast.unparse(node)))

    def _gone(self, module: str, why: str) -> Verdict:
        return Verdict(fit="unfit", difference=f"- {module}.{self.target}\n+ (gone: {why})")

    def _judged(self, source: str) -> Verdict:
        missing = [f for f in self.fragments if f not in source]
        if not missing:
            return Verdict(fit="fit")
        if self.fixed(source):
            return Verdict(fit="not needed")
        return Verdict(fit="unfit", difference="\n".join(_nearest(f, source) for f in missing))


def _nearest(fragment: str, source: str) -> str:
    """A two-line difference: the expression expected, and the line most like it."""

    def common(line: str) -> int:
        """The longest run of characters shared: a fragment is often a small part of a long line."""
        return difflib.SequenceMatcher(None, fragment, line, autojunk=False).find_longest_match().size

    best = max((line.strip() for line in source.splitlines()), key=common, default="")
    return f"- {fragment}\n+ {best if common(best) > len(fragment) * 0.3 else '(nothing like it)'}"
