"""The image that was built: what its record says, whether it is still of this checkout, and where it is.

A name in an engine proves nothing: another checkout may have loaded its own image under it. So an image is
run by the digest that ``image.json`` names, and one that the engine lost is loaded again from the archive.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.build import base, files
from harness.build.engine import Engine
from harness.build.image.context import parts
from harness.build.image.make import ARCHIVE, RECORD, load_archive, place, reference
from harness.build.lock import folder
from harness.console import Output
from harness.errors import EnvironmentDiffersError, ImageError, Problem
from harness.profiles import Profile, root

if TYPE_CHECKING:
    import docker


@dataclass(frozen=True, kw_only=True)
class Built:
    """What ``image.json`` says."""

    profile: Profile
    archive: Path
    manifest: str
    config: str
    fingerprint: str
    parts: dict[str, str]
    revision: str


def read(profile: Profile) -> Built:
    """The record of the image of ``profile``.

    Raises:
        ImageError: it was not built, or the record is damaged.
    """
    path = place(profile) / RECORD
    todo = f"build it: nox -s build-{profile.short}"
    try:
        record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return Built(
            profile=profile,
            archive=path.with_name(ARCHIVE),
            manifest=record["manifest"],
            config=record["config"],
            fingerprint=record["fingerprint"],
            parts=record["parts"],
            revision=record["revision"],
        )
    except FileNotFoundError:
        raise ImageError(
            f"the image {reference(profile)} is not there", where=files.shown(path), todo=todo
        ) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        why = f"{type(error).__name__}: {error}"
        raise ImageError(
            "the image's record cannot be read", where=files.shown(path), why=why, todo=todo
        ) from None


def check(built: Built) -> None:
    """Refuse an image that was built from something else than this checkout holds now.

    Raises:
        EnvironmentDiffersError: one problem for each part that differs.
    """
    now = expected(built.profile)
    problems = [
        Problem(
            what=f"{name} is not what the image of {built.profile.name} was built from",
            where=_where(built.profile, name),
            why=f"built from commit {built.revision[:12]}; then {then[:12]}, now {now[name][:12]}"
            if built.revision
            else f"then {then[:12]}, now {now[name][:12]}",
            todo=f"build the image again: nox -s build-{built.profile.short}",
        )
        for name, then in built.parts.items()
        if name in now and now[name] != then
    ]
    if problems:
        raise EnvironmentDiffersError(*problems)


def expected(profile: Profile) -> dict[str, str]:
    """The parts that an image built now would have, as far as they are known without building."""
    known = parts(profile, root())
    # A bootstrapped base has no digest before it is made; its lock, which is among the parts, stands for it.
    return known if profile.image.base == "bootstrap" else known | {"base": base.pinned(profile)}


def find(client: docker.DockerClient, engine: Engine, built: Built, output: Output) -> str:
    """The image's id in the engine, which is given the archive if it does not have it.

    Raises:
        ImageError: neither the engine nor the folder of the profile has it.
    """
    from docker.errors import ImageNotFound

    for last in (False, True):
        # One store calls an image by its manifest, the other by its configuration.
        for name in (built.config, built.manifest):
            try:
                return str(client.images.get(name).id)
            except ImageNotFound:
                continue
        if last or not built.archive.is_file():
            break
        load_archive(engine, built.archive, output)
    raise ImageError(
        f"the image {built.manifest} is not there",
        where=files.shown(built.archive),
        why="neither the engine nor the archive has it",
        todo=f"build it: nox -s build-{built.profile.short}",
    )


def _where(profile: Profile, name: str) -> str:
    if name in {"harness", "profiles"}:
        return f"{name}/"
    if name == "base":
        return f"profiles/{profile.name}.yaml:image.base"
    return files.shown(folder(profile) / name)
