"""A named patch: why it exists, what it rests on, what it does, and what came of it.

A patch acts when its module is imported, before anyone can bind a name from it. The outcome is one of
three and is never silent: applied, not needed (upstream fixed it), unfit (the run stops and the
difference is shown). Where a patch acts, it says so once in each process.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from types import ModuleType
from typing import Literal

import wrapt
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from harness.adapt.anchors import Anchor
from harness.adapt.settings import Settings
from harness.errors import PatchUnfitError
from harness.evidence import events

Outcome = Literal["applied", "not needed", "unfit", "left out"]


@dataclass(frozen=True, kw_only=True)
class Patch:
    """One change to verl in memory.

    ``verl`` and ``torch`` are version specifiers; outside them the patch is unfit until someone has
    looked. ``when`` says whether these settings need it at all; from the release ``until`` on none does.
    ``apply`` changes the module.
    """

    name: str
    reason: str
    evidence: str
    module: str
    verl: str
    anchor: Anchor
    when: Callable[[Settings], bool]
    apply: Callable[[ModuleType, Settings], None]
    torch: str = ""
    until: str | None = None

    def needed(self, settings: Settings) -> bool:
        """Whether the installed verl needs it with these settings."""
        return self.when(settings) and not self.superfluous(version("verl"))

    def superfluous(self, verl: str) -> bool:
        """Whether upstream has made it so by this release."""
        return self.until is not None and Version(verl) >= Version(self.until)

    def version_problem(self) -> str | None:
        """Why the installed versions are outside of what this patch was made for."""
        for name, specifier in (("verl", self.verl), ("torch", self.torch)):
            installed = version(name)
            if not SpecifierSet(specifier, prereleases=True).contains(installed):
                return f"- {name}{specifier}\n+ {name}=={installed}"
        return None

    def evaluate(self, module: ModuleType) -> tuple[Outcome, str]:
        """The outcome this patch would have on ``module``, and the difference if it is unfit."""
        verdict = self.anchor.check(module)
        if verdict.fit == "not needed":
            return "not needed", ""
        difference = verdict.difference or (self.version_problem() or "")
        return ("unfit", difference) if difference else ("applied", "")

    def run(self, module: ModuleType, settings: Settings) -> Outcome:
        """Apply the patch to ``module`` and record the outcome. Raises :class:`PatchUnfitError`."""
        if self.name in settings.without_patches:
            events.emit("patch", patch=self.name, outcome="left out")
            return "left out"
        outcome, difference = self.evaluate(module)
        events.emit(
            "patch", patch=self.name, outcome=outcome, **({"difference": difference} if difference else {})
        )
        if outcome == "unfit":
            raise unfit(self, difference)
        if outcome == "applied":
            self.apply(module, settings)
        return outcome


def unfit(patch: Patch, difference: str) -> PatchUnfitError:
    """The error for an unfit patch, the difference included."""
    return PatchUnfitError(
        f"patch {patch.name} does not fit this verl",
        where=f"{patch.module}.{patch.anchor.target}",
        why=f"{patch.reason}\n       the code it rests on is not what it was:\n{difference}",
        todo=f"use the locked verl, or leave it out: --without-patch {patch.name}",
    )


_acted: set[str] = set()


def acted(name: str) -> None:
    """Record, once a process, that a patch took effect, and who called into it."""
    if name in _acted:
        return
    _acted.add(name)
    frame = sys._getframe(2)  # noqa: SLF001 - the caller of the patched function
    events.emit("patch_acted", patch=name, where=f"{frame.f_code.co_filename}:{frame.f_lineno}")


def when_imported(module: str, act: Callable[[ModuleType], object]) -> None:
    """Call ``act`` with a module when it is imported, or at once if it already is."""

    def hook(imported: ModuleType) -> None:
        act(imported)

    wrapt.register_post_import_hook(hook, module)


def install(patches: tuple[Patch, ...], settings: Settings) -> None:
    """Arrange for each patch that these settings need to run when its module is imported."""
    for patch in patches:
        if patch.needed(settings):
            when_imported(patch.module, partial(patch.run, settings=settings))
