"""Faults of a command that one value corrects, for a run in spite of them; each is listed as a change."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from harness.data.finding import Finding
from harness.ladder.preflight.settings import Settings
from harness.ladder.preflight.shrink import Change
from harness.ladder.preflight.static import Inspected, inspect
from harness.ladder.preflight.tree import key_of
from harness.profiles.hydra import word

V0_ONLY = "estimator-in-v0-only"
# A class or a file of the user's in the place of verl's own: without it verl's own does it.
_OWN = frozenset({"data.custom_cls.path", "data.sampler.class_path", "reward.reward_manager.module.path"})


def mended(found: Inspected) -> tuple[Inspected, tuple[Change, ...]]:
    """The command with its faults corrected, composed anew; the findings stay those of the command itself."""
    s = Settings(found.config or {})
    made = tuple(change for finding in found.findings for change in _changes(finding, s))
    if not made:
        return found, ()
    gone = {change.key for change in made}
    kept = [text for text in found.asked.words if key_of(text) not in gone]
    added = [word(change.key, change.new) for change in made if not _is_taken_out(change)]
    again = inspect(replace(found.asked, words=(*kept, *added)))
    return replace(again, findings=found.findings), made


def _is_taken_out(change: Change) -> bool:
    return change.new is None and change.key not in _OWN


def _changes(finding: Finding, s: Settings) -> Iterator[Change]:
    if finding.level != "fault":
        return
    why = f"a fault: {finding.what}"
    if finding.id == "unknown-field" or (finding.id == "file-missing" and finding.key in _OWN):
        yield Change(key=finding.key, old=s.get(finding.key), new=None, why=why)
    elif finding.id == V0_ONLY:
        yield Change(key="trainer.use_v1", old=s.get("trainer.use_v1"), new=False, why=why)
