"""Loads a reward function as verl does, and says the true cause where that fails or verl's call cannot fit.

verl's loader wraps what the file raises into an error without a reason (utils/import_utils.py, load_module).
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.data.finding import Finding
from harness.ladder import reward_source


@dataclass(frozen=True, kw_only=True)
class Asked:
    """``given`` is PATH:FUNCTION as the user wrote it; ``passed`` what the manager passes by name."""

    file: str
    function: str
    given: str
    passed: Sequence[str]


def load(asked: Asked, load: Callable[[], Any]) -> tuple[Any, Finding | None]:
    """The manager that verl's ``load`` returns or, in its place, the one finding that stands in the way."""
    try:
        manager, function = load()
    except AttributeError as error:
        if error.__cause__ is None and asked.function in str(error):
            return None, reward_source.missing(_read(asked), asked.given)
        return None, failed(asked, error)
    except BaseException as error:  # noqa: BLE001 - the user's file ran; sys.exit() in it too would end verl
        return None, failed(asked, error)
    if not callable(function):
        kind = f"of type {type(function).__name__}"
        return None, reward_source.no_function(_read(asked), asked.given, kind)
    parameters = reward_source.parameters_of(function)
    unbound = reward_source.unbound(parameters, asked.given, asked.passed) if parameters else ()
    return manager, next(iter(unbound), None)


def _read(asked: Asked) -> reward_source.Reward:
    return reward_source.read(Path(asked.file), asked.function, given=asked.given.rpartition(":")[0])


def failed(asked: Asked, error: BaseException) -> Finding:
    """The finding for a file that raised, or ended its process, while it was loaded."""
    wrapped = isinstance(error, RuntimeError) and "loading module" in str(error) and error.__cause__
    cause: BaseException = wrapped or error
    why, todo = "verl runs the whole file when it loads the function", "import it by itself: python FILE"
    if isinstance(cause, SystemExit):
        what = f"the file ends its process while it is loaded: {place(cause, asked.file)}"
        todo = 'put what is not for verl under: if __name__ == "__main__"'
    elif isinstance(cause, ModuleNotFoundError) and cause.name:
        what, why = place(cause, asked.file), _why_not_found(cause.name, Path(asked.file))
        todo = "put what it needs into the one file, or install the module into the environment of every node"
    else:
        what = place(cause, asked.file)
    return Finding(id="reward-load", key=asked.given, what=f"it cannot be loaded: {what}", why=why, todo=todo)


def _why_not_found(name: str, file: Path) -> str:
    first = name.partition(".")[0]
    if (file.parent / f"{first}.py").is_file() or (file.parent / first).is_dir():
        return f"{first} lies beside the file, and verl's loader does not look for modules there"
    return f"{first} is not in this environment, which holds what the lock names and nothing else"


def place(error: BaseException, file: str) -> str:
    """``ValueError: ... (file:line)``, with the last line of the user's own file."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == file]
    where = f" ({file}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {str(error)[:200]}{where}"
