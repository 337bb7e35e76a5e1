"""``env``: what is installed is what the lock says, and the patches fit this verl."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from importlib.metadata import distributions, version
from pathlib import Path

from packaging.utils import canonicalize_name

from harness.errors import EnvironmentDiffersError, Problem
from harness.fingerprint.lock import pins
from harness.ladder.context import Context, Verified

ANEW = "make the environment anew: verlock env PROFILE --fresh"
CORE = ("verl", "torch", "ray", "transformers", "tensordict", "numpy")


def climb(context: Context) -> Verified:
    """The check of the installation, files that are gone, the core imported, each patch evaluated."""
    checked = context.check_installation()
    expected = pins(context.profile)
    problems = list(_gone(expected, overlay=context.options.verl_source is not None))
    if problems:
        raise EnvironmentDiffersError(*problems)
    if context.options.verl_source is not None:
        _overlay_is_used(context.options.verl_source)
    versions = {name: version(name) for name in CORE}
    context.record.update(versions=versions)
    outcomes = _patches(context)
    torch = importlib.import_module("torch")
    names = [f"{name} {outcome}" for name, outcome in outcomes.items()]
    return Verified(
        line=f"{len(expected)} distributions as locked, {checked.files} files as in their wheels: "
        f"verl {versions['verl']}, torch {torch.__version__}, ray {versions['ray']}; "
        f"{len(names)} patches fit",
        details={
            "patches": outcomes,
            "distributions": len(expected),
            "files": checked.files,
            "check_seconds": checked.seconds,
        },
    )


def _gone(expected: dict[str, str], *, overlay: bool) -> Iterator[Problem]:
    """Distributions whose files were deleted: their metadata may still say that they are installed."""
    for distribution in distributions():
        name = str(canonicalize_name(distribution.metadata["Name"]))
        if name not in expected or (overlay and name == "verl"):
            continue
        code = (f for f in distribution.files or [] if f.suffix in {".py", ".so"})
        missing = [file for file in code if not Path(file.locate()).exists()]
        if missing:
            yield Problem(
                what=f"{name}: {len(missing)} of its files are gone, the first is {missing[0]}", todo=ANEW
            )


def _overlay_is_used(source: Path) -> None:
    import verl

    used = Path(verl.__file__).resolve()
    if not used.is_relative_to(source):
        raise EnvironmentDiffersError(
            f"verl was imported from {used.parent}, not from the checkout",
            where="--verl-source",
            why="the checkout must come first on PYTHONPATH before Python starts",
            todo="start the climb with `verlock`, not with the environment's python",
        )


def _patches(context: Context) -> dict[str, str]:
    """Import each patched module: the import hooks apply the patches and raise for one that is unfit."""
    import verl  # noqa: F401 - imports the plug-in, which installs the hooks

    from harness.adapt.patches import PATCHES
    from harness.evidence import events

    needed = [patch for patch in PATCHES if patch.needed(context.settings)]
    for patch in needed:
        importlib.import_module(patch.module)
    seen = [e for e in events.read(context.folder / "events.jsonl") if e["kind"] == "patch"]
    return {patch.name: next(e["outcome"] for e in seen if e["patch"] == patch.name) for patch in needed}
