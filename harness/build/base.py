"""The base image: a minimal Debian, bootstrapped here from packages that ``base.lock`` names.

No registry is needed, and the result is the same to the last byte each time (measured with mmdebstrap;
debootstrap's is not). Where the packages come from is this machine's business: its own apt sources are used.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.build import base_lock, files
from harness.build.image.archive import sha256
from harness.build.image.layers import apply
from harness.build.image.normalise import Canonical, pack
from harness.build.lock import folder
from harness.console import Output
from harness.errors import BuildError, ToolMissingError
from harness.profiles import Profile

# Read by nobody in an image: a third of the size.
_LEFT_OUT = ("doc", "doc-base", "info", "lintian", "locale", "man")
# What would tell this machine from another: its name, its name server, its mirror, its settings of apt.
_HOST = ("etc/hostname", "etc/resolv.conf", "etc/apt/sources.list", "etc/apt/sources.list.d/*")
# What installing leaves behind that says when, not what.
_TRACES = ("var/log/*.log", "var/log/apt", "var/cache/ldconfig/aux-cache", "var/cache/apt/*.bin")
# As root, mmdebstrap mounts this machine's /dev/shm, /proc and /sys in its tree. Were it killed, they would
# stay, and who removes the folder would empty /dev/shm. In namespaces of its own they end with it.
_APART = (
    ("unshare", "--mount", "--propagation=private", "--pid", "--fork", "--kill-child", "--mount-proc")
    if os.getuid() == 0
    else ()
)
_RECIPE = "1"
"""Raise it when the recipe changes: kept bases are then made again."""


@dataclass(frozen=True, kw_only=True)
class Base:
    """What the image starts from."""

    reference: str
    """What ``FROM`` names."""
    digest: str
    archive: Path | None
    """To be loaded into the engine; none where the engine pulls it."""


def prepare(profile: Profile, home: Path, *, update: bool, fresh: bool, output: Output) -> Base:
    """The base of ``profile``, made if it is not at hand in ``home``.

    Args:
        profile: whose base.
        home: where the archive is kept.
        update: write ``base.lock`` anew instead of comparing with it.
        fresh: make it even if one is at hand.
        output: where progress goes.

    Raises:
        ToolMissingError: mmdebstrap is not installed.
        BuildError: packages that cannot be had, or that are not those of the lock.
        DiskFullError: no space left.
    """
    if profile.image.base != "bootstrap":
        return Base(reference=profile.image.base, digest=pinned(profile), archive=None)
    path = home / "base.tar"
    lock = folder(profile) / base_lock.FILE
    kept = None if update or fresh else _kept(path, _key(lock))
    if kept is None:
        made = _make(profile, path, lock, update=update, output=output)
        kept = {"key": _key(lock), "manifest": made.manifest, "archive": made.archive}
        files.write(path.with_suffix(".json"), json.dumps(kept, indent=2) + "\n")
    name = reference(profile)
    return Base(reference=name, digest=str(kept["manifest"]), archive=path)


def reference(profile: Profile) -> str:
    """What engines call the bootstrapped base of ``profile``."""
    return f"verlock-base:{profile.name}"


def pinned(profile: Profile) -> str:
    """The digest of a base that comes from a registry."""
    return profile.image.base.partition("@")[2]


def command(profile: Profile, target: Path, *, notes: Path, own_sources: bool) -> list[str]:
    """The bootstrap's command line. Pure."""
    excludes = [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in _LEFT_OUT]
    keep = f'cp "$1"/var/lib/apt/lists/*_Packages "$1"/var/lib/dpkg/status {notes}/'
    clean = " ".join(f'"$1"/{pattern}' for pattern in (*_HOST, *_TRACES))
    return [
        *_APART,
        "mmdebstrap",
        "--variant=minbase",
        "--format=tar",
        f"--architectures={_machine(profile)}",
        f"--include={','.join(profile.image.packages)}",
        "--aptopt=APT::Install-Recommends false",
        "--aptopt=Acquire::GzipIndexes false",
        *excludes,
        f"--customize-hook={keep}",
        f"--customize-hook=rm -rf {clean}",
        profile.image.release,
        str(target),
        *(["-"] if own_sources else []),
    ]


def _make(profile: Profile, path: Path, lock: Path, *, update: bool, output: Output) -> Canonical:
    if shutil.which("mmdebstrap") is None:
        raise ToolMissingError(
            "mmdebstrap is not installed",
            why="the base image is made from Debian packages with it",
            todo="apt-get install mmdebstrap, or name a base image by digest in the profile (image.base)",
        )
    locked = None if update else base_lock.read(lock)
    output.line(f"bootstrapping Debian {profile.image.release} ({_machine(profile)}) from packages")
    with files.disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".base.") as scratch:
            tree = Path(scratch, "tree.tar")
            notes = Path(scratch, "notes")
            notes.mkdir()
            _bootstrap(profile, tree, notes)
            found = base_lock.installed(notes)
            if locked is None:
                files.write(lock, base_lock.text(profile, _machine(profile), found))
            else:
                base_lock.compare(locked, found, lock, profile)
            return _packed(profile, tree, path)


def _bootstrap(profile: Profile, tree: Path, notes: Path) -> None:
    sources = own_sources(profile.image.release)
    done = subprocess.run(
        command(profile, tree, notes=notes, own_sources=bool(sources)),
        input=sources or None,
        stdin=None if sources else subprocess.DEVNULL,
        env={
            **os.environ,
            "SOURCE_DATE_EPOCH": "0",
            "LC_ALL": "C.UTF-8",
            "TZ": "UTC",
            "TMPDIR": str(tree.parent),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 0:
        return
    # apt's errors begin with E:, as do mmdebstrap's; the mirror's name in them stays on this terminal.
    said = [line for line in done.stderr.splitlines() if line.startswith(("E:", "W:"))]
    foreign = " (packages of another architecture need qemu-user-static, binfmt-support and arch-test)"
    raise BuildError(
        "the base could not be bootstrapped",
        where=f"profiles/{profile.name}.yaml:image",
        why=" | ".join(said[-4:]) or done.stderr.strip()[-500:] or None,
        todo="check the package names and the network, and try `apt-get update`"
        + (foreign if _machine(profile) != _own_machine() else ""),
    )


def own_sources(release: str) -> str:
    """This machine's apt sources of ``release``, as lines of a sources.list; empty where it has none."""
    fields = "deb $(REPO_URI) $(RELEASE) $(COMPONENT)"
    if shutil.which("apt-get") is None:
        return ""
    asked = ["apt-get", "indextargets", "--format", fields, "Created-By: Packages"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    wanted = {release, f"{release}-updates", f"{release}-security"}
    return "".join(
        f"{line}\n" for line in dict.fromkeys(done.stdout.splitlines()) if line.split()[2] in wanted
    )


def _packed(profile: Profile, tree: Path, path: Path) -> Canonical:
    config = {
        "architecture": _machine(profile),
        "os": "linux",
        "config": {
            "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
            "Cmd": ["sh"],
        },
    }
    with tarfile.open(tree) as layer:
        return pack([apply({}, layer, 0)], config, path, name=reference(profile))


def _kept(path: Path, key: str | None) -> dict[str, Any] | None:
    """What is known of the base at ``path``, if it is there whole and made from the same lock."""
    try:
        noted = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
        current = key is not None and noted["key"] == key and noted["archive"] == sha256(path)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return noted if current else None


def _key(lock: Path) -> str | None:
    try:
        return hashlib.sha256(f"{_RECIPE}\0{lock.read_text(encoding='utf-8')}".encode()).hexdigest()
    except FileNotFoundError:
        return None


def _machine(profile: Profile) -> str:
    return profile.hardware.container_platform.partition("/")[2]


def _own_machine() -> str:
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine)
