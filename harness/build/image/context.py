"""What a build may see: a folder made for it, with nothing else of this checkout or this machine in it.

So a build does not depend on what lies around (environments, run records, editors' files), its cache is
not lost to an edit elsewhere, and two builds of one folder are builds of the same thing.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from harness.build import base_lock, files, lockfile, render, sources
from harness.build.lock import BUILD, INSTALLER, folder
from harness.fingerprint.identity import IMAGE as FINGERPRINT
from harness.fingerprint.identity import content
from harness.profiles import Profile, root

WHEELS = "wheels"
RENDERED = ("Dockerfile", "overrides.yaml")


@dataclass(frozen=True, kw_only=True)
class Context:
    """A folder that is ready to be built."""

    path: Path
    dockerfile: Path
    parts: dict[str, str]
    """What it is made of, by name; SHA-256 of each."""
    fingerprint: str
    """SHA-256 over the parts; the image carries it as a label."""


def stage(profile: Profile, path: Path, *, base: str, where_from: sources.Sources) -> Context:
    """Fill the empty folder ``path`` for a build of ``profile`` on the base with digest ``base``.

    Raises:
        StaleError: the committed Dockerfile is not what the profile renders to.
        LockError: a lock that is missing or was altered.
    """
    render.publish([profile.name], check=True)
    target = render.container_target(profile)
    home = folder(profile)
    rendered = path / home.relative_to(root())
    with files.disk_errors(path):
        rendered.mkdir(parents=True)
        for name in (target.file, BUILD, INSTALLER):
            lockfile.check_seal((home / name).read_text(encoding="utf-8"), file=files.shown(home / name))
            shutil.copyfile(home / name, rendered / name)
        for name in (*RENDERED, "Dockerfile.dockerignore", base_lock.FILE):
            if name != base_lock.FILE or profile.image.base == "bootstrap":
                shutil.copyfile(home / name, rendered / name)
        ignore = shutil.ignore_patterns("__pycache__", "*.pyc", *render.HOST_ROOMS)
        shutil.copytree(root() / "harness", path / "harness", ignore=ignore)
        shutil.copytree(root() / "profiles", path / "profiles")
        made_of = {"base": base, **parts(profile, path)}
        text = json.dumps(made_of, indent=2, sort_keys=True) + "\n"
        files.write(rendered / FINGERPRINT, text)
        # Not part of the fingerprint: a wheel that comes from here has the hash that the lock gives it.
        _offer(path / WHEELS, home / target.file, where_from)
    return Context(
        path=path,
        dockerfile=rendered / "Dockerfile",
        parts=made_of,
        fingerprint="sha256:" + hashlib.sha256(text.encode()).hexdigest(),
    )


def parts(profile: Profile, tree: Path) -> dict[str, str]:
    """What an image of ``profile`` depends on in ``tree``, a context or a checkout: name to SHA-256."""
    rendered = tree / folder(profile).relative_to(root())
    single = [*RENDERED, render.container_target(profile).file, BUILD, INSTALLER]
    if profile.image.base == "bootstrap":
        single.append(base_lock.FILE)
    made_of = {name: hashlib.sha256((rendered / name).read_bytes()).hexdigest() for name in single}
    return made_of | {name: digest(tree / name) for name in ("harness", "profiles")}


def digest(path: Path) -> str:
    """SHA-256 over names and contents of all files below ``path`` that go into an image."""
    return content(path, without=render.HOST_ROOMS)


def _offer(wheels: Path, lock: Path, where_from: sources.Sources) -> None:
    """Lay those wheels of this machine's folders into the context that the lock names, hash and all."""
    wheels.mkdir()
    pins = lockfile.parse(lock.read_text(encoding="utf-8"), file=files.shown(lock))
    for file in (file for place in where_from.folders() for file in sorted(place.glob("*.whl"))):
        name, version, *_ = file.name.split("-")
        pin = pins.get(name.lower().replace("_", "-"))
        if pin is None or pin.version != version.replace("%2B", "+") or (wheels / file.name).exists():
            continue
        with file.open("rb") as opened:
            known = hashlib.file_digest(opened, "sha256").hexdigest() in pin.hashes
        if known:
            _link(file, wheels / file.name)


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source.resolve(), target)
    except OSError:  # another file system
        shutil.copyfile(source, target)
