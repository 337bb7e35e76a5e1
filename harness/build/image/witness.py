"""Which image a run was made in: said by the machine that started it, since an image cannot know its digest.

A hand-off takes a run record as proof of an image only if the record names that image's digest. It is
written into the record after the container has ended, when nothing else writes there.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from harness.build.files import shown
from harness.build.image.make import RECORD, place, reference
from harness.errors import ImageError
from harness.evidence.files import replace_text
from harness.evidence.model import Image, load
from harness.profiles import Profile


def known(profile: Profile, engine_id: str) -> Image | None:
    """The digests of the image that the engine calls ``engine_id``; none where ``dist/`` has no record.

    Args:
        profile: whose image.
        engine_id: the config's digest, or the manifest's where the engine keeps images in containerd's store.

    Raises:
        ImageError: the engine's image is not the one in ``dist/``: its runs would prove another one.
    """
    path = place(profile) / RECORD
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        image = Image(manifest=record["manifest"], config=record["config"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError) as error:
        raise ImageError(
            "the image's record cannot be read",
            where=shown(path),
            why=str(error),
            todo=f"build it again: nox -s build-{profile.short}",
        ) from None
    if engine_id not in (image.manifest, image.config):
        raise ImageError(
            f"the engine's {reference(profile)} is not the image that was built last",
            where=shown(path),
            why=f"the engine has {engine_id}, the record says {image.manifest} (config {image.config})",
            todo=f"load it: docker load --input {shown(path.parent / record['archive']['file'])}",
        )
    return image


def records(runs: Path) -> frozenset[Path]:
    """The run folders below ``runs``; not ``latest``, which is a link to one of them."""
    return frozenset(path.parent for path in runs.glob("*/run.json") if not path.parent.is_symlink())


def note(image: Image | None, folders: Iterable[Path]) -> None:
    """Write the digests into the records of ``folders``."""
    for folder in folders if image else ():
        run = load(folder).model_copy(update={"image": image})
        replace_text(folder / "run.json", run.json_text(), what="write the image's digest into the record")
