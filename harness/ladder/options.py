"""What a climb was asked for."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, get_args

from harness.adapt.contract.terms import Mode
from harness.adapt.stops.place import Place
from harness.errors import OverrideError, Problem
from harness.evidence import given
from harness.ladder import reward_source
from harness.ladder.place import HERE
from harness.ladder.place import Place as Machine

RungName = Literal[
    "env", "data", "forward", "rollout", "reward", "ppo-mock", "ppo", "checkpoint", "ppo-2ranks"
]
ORDER: tuple[RungName, ...] = get_args(RungName)
Checkpoint = Literal["none", "mock", "disk"]
Algorithm = Literal["ppo", "grpo", "rloo", "reinforce_plus_plus", "dapo"]
GROUPED = frozenset({"grpo", "rloo", "dapo"})
"""Those that compare the responses to one prompt, and therefore need several."""
TINY = "tiny"
_FOR_PEOPLE = 7 * 24 * 3600.0
_RUNG_SECONDS, _TRAINER_SECONDS, _STEP_SECONDS = 1200.0, 1800.0, 300.0


def unknown(option: str, word: object, choices: Sequence[str]) -> Problem:
    """What is said of a word that an option does not take."""
    return Problem(what=f"{option} {word} is unknown", todo=f"one of: {', '.join(choices)}")


def known_rung(option: str, name: str) -> RungName:
    """The rung of that name.

    Raises:
        OverrideError: there is none; the message lists them.
    """
    for rung in ORDER:
        if rung == name:
            return rung
    raise OverrideError(unknown(option, name, ORDER))


@dataclass(frozen=True, kw_only=True)
class ClimbOptions:
    """``model``, ``data``: ``tiny`` or a path. ``reward``: ``mock``, ``rule`` or ``PATH:FUNCTION``."""

    profile: str = "cpu"
    first: RungName = "env"
    last: RungName = "ppo"
    rollout: Literal["hf", "mock"] = "hf"
    reward: str = "rule"
    checkpoint: Checkpoint = "disk"
    """``none`` leaves the rung out; ``mock`` saves and loads all but weights and optimiser."""
    model: str = TINY
    data: str = TINY
    algorithm: Algorithm = "ppo"
    use_v1: bool = False
    seed: int = 1
    steps: int = 4
    verl_source: Path | None = None
    without_patches: frozenset[str] = frozenset()
    overrides: tuple[str, ...] = ()
    fork: bool = True
    """Whether Ray's workers are forked from one process that has imported all (harness/warm)."""
    any_reward: bool = False
    """Whether a reward that gives all responses the same is no fault: a user's own, on an untrained model."""
    deadline: float | None = None
    """Seconds that a rung may take; none: by its kind."""
    silence: float = 900.0
    """Seconds that the trainer may say nothing."""
    stop: Place | None = None
    """Where its processes show themselves or wait for a debugger."""
    log_level: str = ""
    runs: Path = Path("runs")
    place: Machine = HERE
    """Where it runs: a GPU, this CPU, or a rehearsal on it."""
    contract: Mode | None = None
    """Whether the profile's bans are enforced, only recorded, or neither."""

    def seconds(self, *, steps: int | None = None) -> float:
        """How long a rung may take: one of this process, or a trainer's of so many steps.

        Generous: a real model on a laptop takes a minute a step (12 s measured with 135M parameters).
        """
        if self.waits:
            return _FOR_PEOPLE
        if self.deadline is not None:
            return self.deadline
        return _RUNG_SECONDS if steps is None else _TRAINER_SECONDS + _STEP_SECONDS * steps

    @property
    def waits(self) -> bool:
        """Whether it waits for somebody at a debugger: no deadline counts then."""
        return self.stop is not None and self.stop.tool != "dump"

    @property
    def patience(self) -> float:
        """Seconds that the trainer may say nothing."""
        return _FOR_PEOPLE if self.waits else self.silence

    @property
    def rungs(self) -> tuple[RungName, ...]:
        """The rungs to climb, in order."""
        first, last = ORDER.index(self.first), ORDER.index(self.last)
        if first > last:
            raise OverrideError(
                f"--from {self.first} comes after --to {self.last}", todo=f"the order is {', '.join(ORDER)}"
            )
        wanted = ORDER[first : last + 1]
        return tuple(name for name in wanted if name != "checkpoint" or self.checkpoint != "none")

    def files(self) -> list[Path]:
        """The user's files and folders that the options name, as far as they are there."""
        named = [Path(name) for _word, name in given.named(self.overrides)]
        named += [Path(value) for value in (self.model, self.data) if value != TINY]
        return named + ([Path(self.reward.rpartition(":")[0])] if ":" in self.reward else [])

    def reward_function(self) -> tuple[Path, str] | None:
        """File and function for verl's ``reward.custom_reward_function``; none for verl's own choice."""
        ours = Path(__file__).parent.parent / "data" / "rewards.py"
        if self.reward == "mock":
            return ours, "mock"
        if self.reward == "rule":
            # A real data set is scored by verl's own rule for its data_source.
            return (ours, "arithmetic") if self.data == TINY else None
        path, _, function = self.reward.rpartition(":")
        if not path or not function:
            raise OverrideError(
                f"--reward {self.reward} is no reward",
                todo="give mock, rule, or PATH:FUNCTION",
                where="--reward",
            )
        file = Path(path).expanduser().resolve()
        if not function.isidentifier():
            raise OverrideError(
                f"{function!r} can be no function's name", where="--reward", todo="give PATH:FUNCTION"
            )
        if not file.is_file():
            raise OverrideError(
                f"no such file: {path}", where="--reward", todo="give PATH:FUNCTION of your reward"
            )
        _parses(file)
        _is_there(file, function, path)
        return file, function


def _is_there(file: Path, function: str, given: str) -> None:
    """Find a name that the file does not have now; verl looks for it when the models are loaded."""
    # Whether verl's call fits its parameters is the reward rung's: reward_kwargs may add to them.
    found = replace(reward_source.read(file, function, given=given), parameters=None)
    wrong = list(reward_source.judge(found, path_key="--reward", name_key="--reward"))
    if wrong:
        raise OverrideError(*(finding.problem for finding in wrong))


def _parses(file: Path) -> None:
    """Find a syntax error now: verl's loader reports only that it could not load the file."""
    try:
        ast.parse(file.read_bytes(), filename=str(file))
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        raise OverrideError(
            f"the reward file is not Python: {error}",
            where=f"{file}:{line}" if line else str(file),
            todo="correct it; `python -m py_compile FILE` says the same",
        ) from error
