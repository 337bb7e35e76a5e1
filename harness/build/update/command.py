"""``verlock update``: proposals, each tried; with ``--write NAME`` one of them is made."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness.build import files, sources
from harness.build.index import Index
from harness.build.update import changes
from harness.build.update.changes import Change, Unknown
from harness.build.update.trial import Trial, attempt, concerned, copied, remake
from harness.build.web import Web
from harness.console import Output
from harness.errors import UpdateError
from harness.profiles import Profile, load, root

_SHOWN = 12


def update(given: str, *, write: str | None, output: Output) -> None:
    """Propose what is newer for a profile, or make one change.

    Raises:
        UpdateError: ``write`` names nothing that is newer, or the change cannot be made.
    """
    profile = load(given)
    with Web(sources.here()) as web:
        index = Index(web, sources.here())
        found = list(changes.find(profile, index, today=f"{datetime.now(UTC):%Y-%m-%d}T00:00:00Z"))
        found += changes.actions(root() / ".github" / "workflows", changes.remote_tags)
        known = [one for one in found if isinstance(one, Change)]
        unknown = [one for one in found if isinstance(one, Unknown)]
        if write:
            _write(profile, _named(write, known), output)
            return
        trials = []
        for change in known:
            output.line(f"trying {change.name} {change.proposed}")
            trial = attempt(profile, change, web, index)
            if trial.locks or trial.problems or change.edits:  # a base of the same packages is no change
                trials.append(trial)
    document = {
        "profile": profile.name,
        "changes": [trial.document() for trial in trials],
        "unknown": [asdict(one) for one in unknown],
    }
    output.result(document, lambda: _print(profile, trials, unknown, output))


def _named(name: str, known: list[Change]) -> Change:
    for change in known:
        if change.name == name:
            return change
    raise UpdateError(
        f"{name} has nothing newer, or is no pin",
        where="--write",
        todo=f"one of: {', '.join(one.name for one in known) or 'none today'}",
    )


def _write(profile: Profile, change: Change, output: Output) -> None:
    """Make the change in a copy, with all that follows from it, then bring the files over.

    Raises:
        UpdateError: what follows from it cannot be made, or a file was changed meanwhile. Nothing is written.
    """
    before = _texts(root())
    with copied(change) as place:
        code, problems = remake(place, change, concerned(profile, change))
        if code:
            raise UpdateError(
                f"{change.name} {change.proposed} cannot be taken",
                why=" | ".join(problems),
                todo="nothing was written; resolve this in the profile, or leave the pin",
            )
        after = _texts(place)
    if _texts(root()) != before:
        raise UpdateError(
            "a file was changed while the update was made", todo="nothing was written; start it again"
        )
    written = [name for name, text in after.items() if before.get(name) != text]
    for name in written:
        files.write(root() / name, after[name])

    def human() -> None:
        for name in written:
            output.line(f"wrote {name}")

    output.result({"written": written, "change": asdict(change)}, human)


def _texts(place: Path) -> dict[str, str]:
    """What an update may write, by name from the root."""
    found = [
        *place.glob("profiles/*.yaml"),
        *place.glob(".github/workflows/*"),
        *place.glob("docker/rendered/**/*"),
    ]
    texts = sorted(path for path in found if path.is_file())
    return {str(path.relative_to(place)): path.read_text(encoding="utf-8") for path in texts}


def _print(profile: Profile, trials: list[Trial], unknown: list[Unknown], output: Output) -> None:
    for trial in trials:
        change = trial.change
        output.line(f"{change.name}: {change.current} -> {change.proposed}", style="bold")
        for edit in change.edits[1:]:
            output.line(f"  with {edit.before} -> {edit.after} ({edit.file}:{edit.line})")
        for name, moves in trial.locks.items():
            rest = f", and {len(moves) - _SHOWN} more" if len(moves) > _SHOWN else ""
            output.line(f"  {name}: {', '.join(move.line() for move in moves[:_SHOWN])}{rest}")
        for line in _judgements(trial):
            output.line(f"  {line}")
        if not trial.problems:
            output.line(f"  take it: verlock update {profile.short} --write {change.name!r}")
    for one in unknown:
        output.line(f"{one.name}: not looked up: {one.why}", style="yellow")
    if not trials:
        output.line("nothing is newer")


def _judgements(trial: Trial) -> list[str]:
    said = [f"cannot be taken: {problem}" for problem in trial.problems[:_SHOWN]]
    if len(trial.problems) > _SHOWN:
        said.append(f"and {len(trial.problems) - _SHOWN} more (--json lists them)")
    if trial.audit:
        said.append(f"audit: {trial.audit}")
    for patch in trial.patches:
        outside: Any = "" if patch["in_versions"] else f"; made for verl{patch['versions']}"
        said.append(f"patch {patch['patch']}: {patch['fit']}{outside}")
        said += [f"  {line}" for line in patch["difference"].splitlines()]
    return said
