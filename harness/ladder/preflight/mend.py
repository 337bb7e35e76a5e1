"""Faults of a command that one value corrects, for a run in spite of them; each is listed as a change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from harness.data.finding import Finding, faults
from harness.ladder.preflight.settings import Settings
from harness.ladder.preflight.shrink import Change
from harness.ladder.preflight.static import Inspected, inspect
from harness.ladder.preflight.tree import key_of
from harness.profiles.hydra import word

V0_ONLY = "estimator-in-v0-only"
_ROUNDS = 10
# A class or a file of the user's in the place of verl's own: without it verl's own does it.
_OWN = frozenset({"data.custom_cls.path", "data.sampler.class_path", "reward.reward_manager.module.path"})


def mended(found: Inspected) -> tuple[Inspected, tuple[Change, ...]]:
    """The command with its faults corrected, composed anew; the findings stay those of the command itself.

    Again and again: of several fields that a class does not have, verl names the first.
    """
    made: list[Change] = []
    now = found
    for _ in range(_ROUNDS):
        s, given = Settings(now.config or {}), {key_of(text): text for text in now.asked.words}
        pairs = [pair for finding in faults(now.findings) for pair in _changes(finding, s, given)]
        if not pairs:
            break
        made += [change for change, _ in pairs]
        gone = {change.key for change, _ in pairs}
        kept = [text for text in now.asked.words if key_of(text) not in gone]
        added = [text for _, text in pairs if text is not None]
        now = inspect(replace(now.asked, words=(*kept, *added)))
    return replace(now, findings=found.findings), tuple(made)


def _changes(finding: Finding, s: Settings, given: Mapping[str, str]) -> Iterator[tuple[Change, str | None]]:
    """The change, and the word that makes it; none where the user's word is only left out."""
    key, why = finding.key, f"a fault: {finding.what}"
    if finding.id == "unknown-field":
        yield Change(key=key, old=s.get(key), new=None, why=why), None
    elif finding.id == "file-missing" and key in _OWN:
        yield Change(key=key, old=s.get(key), new=None, why=why), word(key, None)
    elif finding.id == "key-exists" and given.get(key, "").startswith("+"):
        text = given[key].lstrip("+")
        yield Change(key=key, old=s.get(key), new=text.partition("=")[2], why=why), text
    elif finding.id == V0_ONLY:
        yield (
            Change(key="trainer.use_v1", old=s.get("trainer.use_v1"), new=False, why=why),
            word("trainer.use_v1", False),
        )
