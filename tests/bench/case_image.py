"""The image's bytes beside what it holds; the normaliser beside SHA-256, which it has to compute as well."""

from __future__ import annotations

import hashlib
import io
import json
import random
import tarfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from measure import Case
from place import Place

from harness.build.image.normalise import normalise
from harness.build.lock import folder as lock_folder
from harness.profiles import load

FILES, BYTES = 4000, 64 * 1024


def cases(place: Place) -> Iterator[Case]:
    """A saved image of 4000 files of 64 KiB in one layer, as `docker save` writes it on overlay2."""
    folder = place.folder("image")
    saved = _saved(folder)
    megabytes = saved.stat().st_size / 1e6

    def ours() -> float:
        begin = time.perf_counter()
        normalise(saved, folder / "canonical.tar", name="verlock-bench:x")
        return megabytes / (time.perf_counter() - begin)

    def floor() -> float:
        begin = time.perf_counter()
        with saved.open("rb") as file:
            hashlib.file_digest(file, "sha256")
        return megabytes / (time.perf_counter() - begin)

    yield Case(
        id="normalise",
        what=f"normalising a saved image of {megabytes:.0f} MB",
        unit="MB/s",
        sides={"verlock": ours, "sha256 alone": floor},
    )
    yield Case(
        id="image-bytes",
        what="the cpu image's archive, and the wheels of its lock as pip installs them, byte code included",
        unit="MB",
        sides={"image": partial(_archive, place.root), "installed": partial(_installed, place)},
        rounds=1,
        notes=["the image holds Debian, Python and the harness as well; it is not compressed"],
    )


def _archive(root: Path) -> float:
    record = root / "dist" / "cpu" / "image.json"
    if not record.is_file():
        raise RuntimeError("no cpu image is here: nox -s build-cpu makes it")
    return float(json.loads(record.read_text(encoding="utf-8"))["archive"]["bytes"]) / 1e6


def _installed(place: Place) -> float:
    """The sizes of all files of an environment made from the same lock, each counted once."""
    profile = load("cpu")
    lock = lock_folder(profile) / profile.software.targets[0].file
    python = place.tool("installed", ("--require-hashes", "--requirements", str(lock)))
    sizes = {
        (status.st_dev, status.st_ino): status.st_size
        for path in python.parents[1].rglob("*")
        if path.is_file() and not path.is_symlink()
        for status in (path.stat(),)
    }
    return sum(sizes.values()) / 1e6


def _saved(folder: Path) -> Path:
    draw = random.Random(1)
    layer = folder / "layer.tar"
    with tarfile.open(layer, "w") as archive:
        for number in range(FILES):
            member = tarfile.TarInfo(f"opt/{number % 50}/{number}")
            member.size, member.mtime = BYTES, 1_700_000_000
            archive.addfile(member, io.BytesIO(draw.randbytes(BYTES)))
    with layer.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Env": ["PATH=/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": ["verlock-bench:x"], "Layers": ["one/layer.tar"]}]
    saved = folder / "saved.tar"
    with tarfile.open(saved, "w") as archive:
        archive.add(layer, "one/layer.tar")
        for name, document in (("config.json", config), ("manifest.json", manifest)):
            data = json.dumps(document).encode()
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    layer.unlink()
    return saved
