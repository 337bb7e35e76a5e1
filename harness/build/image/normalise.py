"""From what any engine saved to the one canonical archive: the same bytes from each of them.

Measured in the facts that this rests on: Docker 20.10 (overlay2), 26.1 (containerd) and 28.5 (both stores)
save the same build in different layouts, with other parents, times, histories and compressions. What is
left after all that is taken away is the image.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness.build.files import disk_errors
from harness.build.image.archive import CONFIG, MANIFEST, Writer, sha256
from harness.build.image.entries import Entry
from harness.build.image.layers import difference
from harness.build.image.saved import open_saved

# What says how the image runs. The rest (the engine's version, the build container's id, `ArgsEscaped`) says
# how it was made.
_RUNS = (
    "Cmd",
    "Entrypoint",
    "Env",
    "ExposedPorts",
    "Healthcheck",
    "Labels",
    "StopSignal",
    "User",
    "Volumes",
    "WorkingDir",
)
_MACHINE = ("architecture", "os", "variant")
# Podman mounts these while a step runs, and leaves empty files in the layer; and it signs what it builds.
_MOUNT_POINTS = ("etc/hostname", "etc/hosts", "etc/resolv.conf")
_SIGNATURE = "io.buildah.version"


@dataclass(frozen=True, kw_only=True)
class Canonical:
    """An archive that was written, and the three numbers that name what is in it."""

    path: Path
    manifest: str
    """What a registry calls the image, as in ``sha256:...``."""
    config: str
    """What Docker without the containerd store calls it."""
    archive: str
    """SHA-256 of the file."""
    size: int
    layers: int

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "path": str(self.path)}


def normalise(source: Path, target: Path, *, name: str, epoch: int = 0) -> Canonical:
    """Write the canonical form of the saved image ``source`` to ``target``, whole or not at all.

    Args:
        source: an archive of ``docker save`` or ``podman save``, or an OCI archive.
        target: where the canonical archive goes.
        name: what engines call the image that they load from it, as in ``verlock:cpu``.
        epoch: the time stamp of everything, in seconds.

    Raises:
        ImageError: the source is cut off, damaged or not an image.
        DiskFullError: no space left; nothing remains at ``target``.
    """
    with open_saved(source) as saved:
        return pack(map(without_mount_points, saved.trees()), saved.config, target, name=name, epoch=epoch)


def without_mount_points(tree: Mapping[str, Entry]) -> Mapping[str, Entry]:
    """The tree without the empty files that an engine mounts something over. Pure."""
    left = [path for path in _MOUNT_POINTS if path in tree and tree[path].is_empty]
    return {path: entry for path, entry in tree.items() if path not in left} if left else tree


def pack(
    trees: Iterable[Mapping[str, Entry]],
    config: Mapping[str, Any],
    target: Path,
    *,
    name: str,
    epoch: int = 0,
) -> Canonical:
    """Write an archive whose layers lead from each tree to the next, beginning with nothing."""
    with disk_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        descriptor, part = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with os.fdopen(descriptor, "w+b") as file:
                writer = Writer(file, epoch=epoch)
                layers = [layer for changes in _changes(trees) if (layer := writer.layer(changes))]
                diffs = [layer["digest"] for layer in layers]
                reduced = writer.document(reduce_config(config, diffs, epoch), CONFIG)
                manifest = writer.document(
                    {"schemaVersion": 2, "mediaType": MANIFEST, "config": reduced, "layers": layers}, MANIFEST
                )
                writer.finish(manifest, reduced["digest"], diffs, name)
                file.flush()
                os.fsync(file.fileno())
            Path(part).chmod(0o644)
            digest = sha256(Path(part))
            Path(part).replace(target)
        except BaseException:
            Path(part).unlink(missing_ok=True)
            raise
    return Canonical(
        path=target,
        manifest=manifest["digest"],
        config=reduced["digest"],
        archive=digest,
        size=target.stat().st_size,
        layers=len(layers),
    )


def reduce_config(config: Mapping[str, Any], diffs: list[str], epoch: int) -> dict[str, Any]:
    """The configuration without what differs from engine to engine. Pure."""
    created = datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    runs = dict(config.get("config") or {})
    runs["Labels"] = {key: value for key, value in (runs.get("Labels") or {}).items() if key != _SIGNATURE}
    return {
        **{key: config[key] for key in _MACHINE if config.get(key)},
        "created": created,
        "config": {key: runs[key] for key in _RUNS if runs.get(key)},
        # One a layer: tools that pair the two stop at a different count.
        "history": [{"created": created, "created_by": "verlock"} for _ in diffs],
        "rootfs": {"type": "layers", "diff_ids": diffs},
    }


def _changes(trees: Iterable[Mapping[str, Entry]]) -> Iterator[Iterator[tuple[str, Entry | None]]]:
    below: Mapping[str, Entry] = {}
    for tree in trees:
        yield difference(below, tree)
        below = tree
