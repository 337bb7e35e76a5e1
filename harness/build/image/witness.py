"""Which image a run was made in: said by the machine that started it, since an image cannot know its digest.

A hand-off takes a run record as proof of an image only if the record names that image's digest. It is
written into the record after the container has ended, when nothing else writes there.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from harness.build.image.built import Built
from harness.evidence.files import replace_text
from harness.evidence.model import Image, load

_FIRST = 1
"""What a container's command is among its processes: the image's entry point is the harness itself."""


def records(runs: Path) -> frozenset[Path]:
    """The run folders below ``runs``; not ``latest``, which is a link to one of them."""
    return frozenset(path.parent for path in runs.glob("*/run.json") if not path.parent.is_symlink())


def note(built: Built, folders: Iterable[Path]) -> None:
    """Write the digests, and the second layer of the fingerprint, into the records of ``folders``.

    A climb that ran beside the container, on the machine itself, has not process number 1 and stays as it is.
    """
    for folder in folders:
        run = load(folder)
        if run.pid != _FIRST or run.profile != built.profile.name:
            continue
        changes = {
            "image": Image(manifest=built.manifest, config=built.config),
            "fingerprint": {**run.fingerprint, "image": built.fingerprint},
        }
        noted = run.model_copy(update=changes).json_text()
        replace_text(folder / "run.json", noted, what="write the image's digest into the record")
