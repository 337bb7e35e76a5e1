"""From an inspected command to the climb of its small form: rows, stand-ins, changes, options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.adapt import verls
from harness.data import file_kind, first_rows
from harness.data.model_check import tokenizer_of
from harness.errors import DataError, Problem
from harness.ladder.inputs import Inputs
from harness.ladder.options import TINY, ClimbOptions
from harness.ladder.overrides import for_rung
from harness.ladder.preflight import stand_ins
from harness.ladder.preflight.facts import DataFile
from harness.ladder.preflight.settings import Settings
from harness.ladder.preflight.shrink import PROMPTS, Change, changes, words
from harness.ladder.preflight.static import Inspected
from harness.profiles.hydra import word
from harness.profiles.load import load

# Tokens of a prompt that a smoke run holds. The tiny model's tokenizer counts bytes, and has 2048 positions.
_LONGEST = 1900


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """What will run, how it differs, and what it leaves open."""

    options: ClimbOptions
    changes: tuple[Change, ...]
    not_verified: tuple[str, ...]


def prepare(
    inspected: Inspected, options: ClimbOptions, *, stand_in: bool, mends: tuple[Change, ...] = ()
) -> Prepared:
    """Choose rows and stand-ins, and make the climb's options. ``options`` has profile, runs and steps.

    ``mends``: what differs from the user's command already.
    Raises :class:`DataError` where no row fits.
    """
    config, facts, asked = inspected.config or {}, inspected.facts, inspected.asked
    s, profile = Settings(config), load(options.profile)
    verl = profile.software.verl
    here = facts.model is not None and facts.model.kind == "folder"
    model = str(asked.path(facts.model.given)) if here and facts.model else TINY
    rows = PROMPTS * max(options.steps, 2)
    home = (options.runs / "preflight").absolute()
    files = stand_ins.files(inspected)
    if not files and not stand_in:
        _refuse_unread(facts.train)
    kept = first_rows.keep(
        [first_rows.stand_in(home, rows=rows)] if stand_in and not files else files,
        home,
        rows=rows,
        tokenizer=tokenizer_of(model),
        limit=_LONGEST,
        prompt_key=s.text("data.prompt_key") or "prompt",
        media=[text for key in ("image_key", "video_key", "audio_key") if (text := s.text(f"data.{key}"))],
    )
    stand = stand_ins.of(inspected, stand_in=stand_in, prompt=kept.longest, rows=kept.rows)
    chosen = replace(
        options,
        model=model,
        data=str(kept.path),
        reward=stand_ins.reward(inspected)[0],
        algorithm="ppo" if s.critic else "grpo",
        use_v1="v1" in verls.trainers(verl) and s.get("trainer.use_v1") is not False,
        any_reward=True,
    )
    made = changes(s, stand, profile, steps=options.steps)
    rung = verls.written(for_rung(chosen, _shape(), rollout="hf", steps=options.steps), verl)
    given = inspected.words if asked.config_path is None else _flat(config)
    open_ = [*stand_ins.not_verified(s, stand), *(f"the column {name} of the rows" for name in kept.dropped)]
    return Prepared(
        options=replace(chosen, overrides=words(given, config, made, rung, profile)),
        changes=(*mends, *(change for change in made if not change.same)),
        not_verified=tuple(open_),
    )


def _refuse_unread(files: Sequence[DataFile]) -> None:
    """Raise :class:`DataError` for files that verl reads and a small run here does not."""
    found = [finding for file in files if file.checked for finding in file.checked.findings]
    unread = [finding.problem for finding in found if finding.id == file_kind.NOT_CHECKED]
    if unread:
        raise DataError(*unread)


def _shape() -> Inputs:
    """Only the keys of a rung's settings are asked for here, not their values."""
    nowhere = Path()
    return Inputs(
        model=nowhere,
        train=nowhere,
        val=nowhere,
        is_tiny=False,
        prompt_length=1,
        response_length=1,
        batch=1,
        group=1,
    )


def _flat(config: Mapping[str, Any], prefix: str = "") -> tuple[str, ...]:
    """A configuration of the user's own as overrides of verl's tree."""
    found: list[str] = []
    for name, value in config.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping) and value:
            found += _flat(value, f"{key}.")
        elif value != "???":
            found.append(word(f"++{key}", dict(value) if isinstance(value, Mapping) else value))
    return tuple(found)


def problems(inspected: Inspected) -> list[Problem]:
    """The faults, as an error shows them."""
    return [finding.problem for finding in inspected.findings if finding.level == "fault"]
