"""What can be said of a user's reward function before it is called: is it there, and does verl's call fit?

Preflight reads the file, `reward try` loads it as verl does; what they find is said in the same words.
"""

from __future__ import annotations

import ast
import difflib
import inspect
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.data.finding import Finding

PASSED = ("data_source", "solution_str", "ground_truth", "extra_info")
"""What verl's managers pass, all by name (experimental/reward_loop/reward_manager/naive.py, dapo.py)."""
PASSED_IN_BATCHES = ("data_sources", "solution_strs", "ground_truths", "extra_infos")
# With a reward model these come too (naive.py, extra_reward_kwargs).
_SOMETIMES = frozenset({"reward_router_address", "reward_model_tokenizer"})
NO_SCORE = "return a float, or a dict with it under 'score'"


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """A function's parameters as far as a call by name goes; ``required`` have no default."""

    names: tuple[str, ...]
    required: tuple[str, ...]
    takes_any: bool


@dataclass(frozen=True, kw_only=True)
class Reward:
    """A custom reward function's file, read without running it.

    ``functions`` are those that it defines, ``values`` names for what is surely none, ``others`` what may be
    one: imported names, classes, results of calls.
    """

    path: str
    name: str
    present: bool
    error: str | None = None
    functions: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    parameters: Parameters | None = None
    passed: tuple[str, ...] = PASSED


def read(path: Path, name: str, *, given: str, more: Collection[str] = ()) -> Reward:
    """Read the file with Python's parser; ``more`` are the user's reward_kwargs, passed as well."""
    if not path.is_file():
        return Reward(path=given, name=name, present=False)
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError) as error:
        return Reward(path=given, name=name, present=True, error=str(error))
    kinds: dict[str, tuple[str, ast.arguments | None]] = {}
    for bound, kind, arguments in _bound(tree.body):
        kinds[bound] = kind, arguments
    named = {
        kind: tuple(n for n in sorted(kinds) if kinds[n][0] == kind) for kind in ("def", "value", "other")
    }
    arguments = kinds.get(name, ("", None))[1]
    return Reward(
        path=given,
        name=name,
        present=True,
        functions=named["def"],
        values=named["value"],
        others=named["other"],
        parameters=_written(arguments) if arguments else None,
        passed=(*PASSED, *more),
    )


def _bound(body: Sequence[ast.stmt]) -> Iterator[tuple[str, str, ast.arguments | None]]:
    """Names that a module binds, also under ``if`` and ``try``: kind and, of a function, arguments."""
    for node in body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                # What a decorator makes of the arguments is not known without running it.
                yield node.name, "def", None if node.decorator_list else node.args
            case ast.Import() | ast.ImportFrom():
                yield from ((a.asname or a.name.partition(".")[0], "other", None) for a in node.names)
            case ast.ClassDef():
                yield node.name, "other", None
            case ast.Assign(targets=targets, value=value) | ast.AnnAssign(value=value, target=targets):
                for target in targets if isinstance(targets, list) else [targets]:
                    if isinstance(target, ast.Name):
                        yield target.id, *_assigned(value)
            case ast.If() | ast.Try() | ast.With():
                yield from _bound([n for n in ast.iter_child_nodes(node) if isinstance(n, ast.stmt)])
                for handler in getattr(node, "handlers", []):
                    yield from _bound(handler.body)


def _assigned(value: ast.expr | None) -> tuple[str, ast.arguments | None]:
    if isinstance(value, ast.Lambda):
        return "def", value.args
    plain = ast.Constant | ast.List | ast.Dict | ast.Set | ast.Tuple | ast.JoinedStr | ast.BinOp
    return ("value" if isinstance(value, plain) else "other"), None


def _written(arguments: ast.arguments) -> Parameters:
    plain = [*arguments.posonlyargs, *arguments.args]
    required = plain[: len(plain) - len(arguments.defaults)]
    required += [a for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if d is None]
    return Parameters(
        names=tuple(a.arg for a in (*arguments.args, *arguments.kwonlyargs)),
        required=tuple(a.arg for a in required),
        takes_any=arguments.kwarg is not None,
    )


def parameters_of(function: Callable[..., Any]) -> Parameters | None:
    """The same of a function that was loaded; none where Python cannot say."""
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    named = [p for p in found if p.kind in {p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY}]
    wanted = [p for p in found if p.kind not in {p.VAR_POSITIONAL, p.VAR_KEYWORD} and p.default is p.empty]
    return Parameters(
        names=tuple(p.name for p in named),
        required=tuple(p.name for p in wanted),
        takes_any=any(p.kind is p.VAR_KEYWORD for p in found),
    )


def unbound(found: Parameters, key: str, passed: Sequence[str] = PASSED) -> Iterator[Finding]:
    """One finding where verl's call would not fit the parameters."""
    missing = [] if found.takes_any else [name for name in passed if name not in found.names]
    wanted = [
        name for name in found.required if name not in {*passed, *_SOMETIMES} or name not in found.names
    ]
    what = [f"it does not take {', '.join(missing)}"] if missing else []
    what += [f"it wants {', '.join(wanted)}"] if wanted else []
    todo = ["add them, or **kwargs"] if missing else []
    todo += [
        f"give a default to {', '.join(wanted)}, or a value in reward.custom_reward_function.reward_kwargs"
    ]
    if what:
        yield Finding(
            id="reward-signature",
            key=key,
            what=", and ".join(what),
            why=f"verl calls it with {', '.join(passed)} by name: "
            + ("unexpected keyword argument" if missing else "missing required argument"),
            todo="; ".join(todo if wanted else todo[:1]),
        )


def missing(found: Reward, key: str) -> Finding:
    """The finding for a name that the file does not have: the nearest of its functions, or all."""
    near = difflib.get_close_matches(found.name, found.functions, n=1)
    listed = f"it defines: {', '.join(found.functions)}" if found.functions else "it defines no function"
    return Finding(
        id="reward-missing",
        key=key,
        what=f"{found.path} has no function {found.name}",
        why=listed,
        todo=f"did you mean {near[0]}?" if near else "name one of its functions",
    )


def no_function(found: Reward, key: str, kind: str = "a plain value") -> Finding:
    """The finding for a name that is something else."""
    return Finding(
        id="reward-no-function",
        key=key,
        what=f"{found.name} in {found.path} is {kind}, not a function",
        why="verl's loader takes any object of that name, and fails at the first response",
        todo=str(missing(found, key).why),
    )


def judge(found: Reward, *, path_key: str, name_key: str) -> Iterator[Finding]:
    """What reading the file shows, under the keys that name file and function."""
    if not found.present:
        what = f"there is no file {found.path}"
        yield Finding(id="file-missing", key=path_key, what=what, todo="check the path")
    elif found.error:
        what = f"{found.path} is not Python: {found.error}"
        yield Finding(id="reward-syntax", key=path_key, what=what, todo="correct it")
    elif found.name in found.values:
        yield no_function(found, name_key)
    elif found.name not in {*found.functions, *found.others} and "*" not in found.others:
        yield missing(found, name_key)
    elif found.parameters is not None:
        yield from unbound(found.parameters, f"{found.path}:{found.name}", found.passed)
