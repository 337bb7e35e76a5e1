"""What of a failing run is real, and the command that runs it with only some of that. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.errors import DiagnoseError
from harness.evidence.model import Run

# Rungs in which Ray takes part, each with what it adds to the ppo rung.
_WITH_RAY = {"ppo-mock": None, "ppo": None, "checkpoint": "checkpoint", "ppo-2ranks": "ranks"}
_BELOW_RAY, _PPO = ("forward", "reward"), ("ppo", "ppo")
_DTYPE = re.compile(r"(?:dtype|precision|bf16|fp16)")
_ATTENTION = re.compile(r"(?:attn_implementation|use_remove_padding|attention)")
# Option, the boundary it belongs to, and its minimal value.
_CHOICES = {"rollout": "mock", "reward": "mock", "model": "tiny", "data": "tiny"}
_KEPT = {"algorithm": "ppo", "seed": 1, "steps": 4, "checkpoint": "disk", "silence": 900.0}
_CONTRACTS = {"enforce": "--enforce", "record": "--ledger"}


@dataclass(frozen=True, kw_only=True)
class Real:
    """A boundary that is real in the failing run: its words, and those that stand for it when minimal.

    What chooses the rung has no words of its own: :func:`words` puts them together.
    """

    name: str
    words: tuple[str, ...] = ()
    minimal: tuple[str, ...] = ()


def of_run(run: Run) -> list[Real]:
    """The boundaries that can be toggled, in the order in which they are made real.

    Ray first: with it minimal there is no trainer in which the others could be seen. Then what the rung
    adds to the trainer (checkpoint, ranks), what is toggled by an option, and each override by itself.
    """
    settings = run.settings
    rung = failed_rung(run)
    found = []
    if rung in _WITH_RAY:
        found += [Real(name=name) for name in ("ray", _WITH_RAY[rung]) if name]
    for option, minimal in _CHOICES.items():
        value = settings.get(option, minimal)
        if value != minimal:
            found.append(
                Real(name=option, words=(f"--{option}", str(value)), minimal=(f"--{option}", minimal))
            )
    groups: dict[str, list[str]] = {}
    overrides = settings.get("overrides") or []
    for word in overrides if isinstance(overrides, list) else []:
        groups.setdefault(_group(str(word)), []).append(str(word))
    return found + [Real(name=name, words=tuple(words)) for name, words in groups.items()]


def _group(word: str) -> str:
    key = word.partition("=")[0].lstrip("+~")
    if _ATTENTION.search(key):
        return "attention"
    return "dtype" if _DTYPE.search(key) else f"config {key}"


def failed_rung(run: Run) -> str:
    """The rung that failed. Raises :class:`DiagnoseError` where none did: there is nothing to look for."""
    failed = [rung.name for rung in run.rungs if rung.status == "failed"]
    if not failed:
        raise DiagnoseError(
            f"no rung of {run.id} failed",
            where=f"{run.id}: status {run.status}",
            todo="give a failed run, or the words of a climb that fails",
        )
    return failed[-1]


def words(run: Run, boundaries: Sequence[Real], real: frozenset[str]) -> list[str]:
    """The climb's words with only ``real`` real; all that is no boundary stays as it was."""
    first, last = _span(run, real)
    said = ["--from", first, "--to", last, "--profile", run.profile, *_kept(run.settings)]
    late: list[str] = []
    for boundary in boundaries:
        chosen = boundary.words if boundary.name in real else boundary.minimal
        (said if chosen[:1] and chosen[0].startswith("--") else late).extend(chosen)
    return [*said, *(["--", *late] if late else [])]


def _span(run: Run, real: frozenset[str]) -> tuple[str, str]:
    """Which rungs to climb. Below Ray from where the failing run began: what a rung hands up changes others.

    A rung of the trainer stands alone; without what it adds it is the ppo rung, without Ray those below.
    """
    rung = failed_rung(run)
    if rung not in _WITH_RAY:
        return str(run.settings.get("first", rung)), rung
    if "ray" not in real:
        return _BELOW_RAY
    added = _WITH_RAY[rung]
    return (rung, rung) if added is None or added in real else _PPO


def _kept(settings: Mapping[str, Any]) -> list[str]:
    said = []
    for option, default in _KEPT.items():
        value = settings.get(option, default)
        if value != default:
            said += [f"--{option}", str(value)]
    if settings.get("rehearsal"):
        said += ["--rehearse"]
    contract = str(settings.get("contract"))
    said += [_CONTRACTS[contract]] if contract in _CONTRACTS else []
    if settings.get("use_v1") is False:
        said += ["--trainer", "v0"]
    if settings.get("fork") is False:
        said += ["--no-fork"]
    if settings.get("verl_source"):
        said += ["--verl-source", str(settings["verl_source"])]
    if settings.get("deadline"):
        said += ["--deadline", str(settings["deadline"])]
    for name in settings.get("without_patches") or []:
        said += ["--without-patch", str(name)]
    return said
