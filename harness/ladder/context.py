"""What the rungs of one climb share."""

from __future__ import annotations

import gc
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from harness.adapt.settings import Settings
from harness.console import Output
from harness.evidence import events
from harness.evidence.record import RunRecord
from harness.evidence.sampler import Sampler
from harness.fingerprint.guard import Expected
from harness.fingerprint.verify import Verified as Installation
from harness.fingerprint.verify import verify
from harness.ladder.inputs import Inputs, prepare
from harness.ladder.options import ClimbOptions
from harness.ladder.overrides import words
from harness.profiles.model import Profile
from harness.warm.fork import Fork

if TYPE_CHECKING:
    from harness.ladder.trained import Trained


@dataclass(kw_only=True)
class Context:
    """One climb: what was asked, where it is recorded, and what the rungs hand up to each other."""

    options: ClimbOptions
    profile: Profile
    settings: Settings
    record: RunRecord
    sampler: Sampler
    output: Output
    fork: Fork | None = None
    """The fork server of this climb, where there is one."""
    installation: Installation | None = None
    """What was checked of the installation, before the first rung."""
    trained: dict[str, Trained] = field(default_factory=dict)
    """The trainer runs of the rungs so far, for higher ones to compare with."""
    responses: list[Any] = field(default_factory=list)
    """What the ``rollout`` rung generated, for the ``reward`` rung to score."""

    def check_installation(self) -> Installation:
        """Check it if that was not done yet, and pass the numbers on to every process that is started.

        Raises :class:`EnvironmentDiffersError`. At the first rung, whichever it is: the fork server imports
        meanwhile.
        """
        if self.installation is None:
            source = self.options.verl_source
            known = self.fork.known() if self.fork else None
            self.installation = checked = verify(self.profile, overlay=source is not None, known=known)
            if self.fork:
                self.fork.keep(checked.states)
            fingerprint = self.record.run.fingerprint
            self.record.update(fingerprint={**fingerprint, "contents": checked.contents})
            parts = cast(dict[str, Any], fingerprint["parts"])
            passed = Expected(
                profile=self.profile.name,
                parts=parts,
                contents=checked.contents,
                states=checked.states,
                source=str(source) if source else None,
            )
            os.environ |= passed.variables()
            events.emit("environment_verified", files=checked.files, seconds=checked.seconds)
        return self.installation

    @property
    def folder(self) -> Path:
        """The run's folder, absolute: children run elsewhere."""
        return self.record.folder.absolute()

    def words(self, rung: Mapping[str, object]) -> list[str]:
        """The overrides of a run with ``rung``'s settings: the profile's for this place, then the user's."""
        on_cpu = self.options.place.device == "cpu"
        return words(self.profile, rung, self.options.overrides, on_cpu=on_cpu)

    @cached_property
    def inputs(self) -> Inputs:
        """Model and data, made on first use."""
        return prepare(self.options, self.folder / "inputs")

    @cached_property
    def workers(self) -> Any:
        """verl's own training workers in this process, built on first use."""
        from harness.ladder.workers import Workers

        return Workers(self)

    def release(self) -> None:
        """Give back what the first rungs hold: beside a trainer it would be memory for nothing.

        Measured with a model of 135M parameters: 14 GiB at the peak of the ppo rung with it.
        """
        self.responses.clear()
        if self.__dict__.pop("workers", None) is not None:
            gc.collect()


@dataclass(frozen=True, kw_only=True)
class Verified:
    """What a rung verified: one line for people, and the numbers behind it."""

    line: str
    details: dict[str, Any] = field(default_factory=dict)
