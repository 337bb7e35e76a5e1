"""What the environment is, as one number: profile, lock, the harness's files, and a verl laid over it.

In an image there is a second layer: what it was built from, base included, as the build wrote it down.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from collections.abc import Collection
from pathlib import Path
from typing import Any

import harness
from harness.errors import EnvironmentDiffersError
from harness.evidence.files import replace_text
from harness.fingerprint.lock import lock_file
from harness.profiles.load import root
from harness.profiles.model import Profile

_SUFFIXES = frozenset({".py", ".yaml", ".j2", ".html"})
IMAGE = "fingerprint.json"


def fingerprint(profile: Profile, verl_source: Path | None, folder: Path | None = None) -> dict[str, Any]:
    """The parts and their SHA-256 together, and the image's where there is one.

    With an overlay, its difference to its commit is kept in ``folder`` as ``verl.diff``.
    """
    found = parts(profile, verl_source, folder)
    text = json.dumps(found, sort_keys=True)
    return {"environment": _sha(text.encode()), "parts": found} | image()


def parts(profile: Profile, verl_source: Path | None, folder: Path | None = None) -> dict[str, Any]:
    """What the environment's number is made of. 40 ms, most of it for the profile and the harness's files."""
    found: dict[str, Any] = {
        "profile": _sha(profile.model_dump_json().encode()),
        "lock": _sha(lock_file(profile).read_bytes()),
        "harness": _tree(Path(harness.__file__).parent),
    }
    if verl_source is not None:
        found["verl_overlay"] = _overlay(verl_source, folder)
    return found


def holds_verl(checkout: Path) -> bool:
    """Whether a folder is the root of a verl checkout."""
    return (checkout / "verl" / "__init__.py").is_file()


def image() -> dict[str, Any]:
    """The image that this runs in: the digest that its label ``verlock.fingerprint`` has, and the base's.

    The label is the SHA-256 of the file that the build left in the image, so it is in no file that it hashes.
    """
    try:
        text = (root() / IMAGE).read_text(encoding="utf-8")
        return {"image": f"sha256:{_sha(text.encode())}", "base": json.loads(text)["base"]}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise EnvironmentDiffersError(
            "the image's fingerprint cannot be read",
            where=str(root() / IMAGE),
            why=f"{type(error).__name__}: {error}",
            todo="take the image anew, by its digest",
        ) from error


def image_parts() -> dict[str, str]:
    """Name and SHA-256 of what the image was built from, as the build wrote it down."""
    path = root() / IMAGE
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else {}


def content(folder: Path, *, without: Collection[str] = ()) -> str:
    """SHA-256 over names and contents of a folder's files, byte code and the rooms ``without`` left out."""
    total = hashlib.sha256()
    for file in sorted(file for file in folder.rglob("*") if file.is_file()):
        name = file.relative_to(folder)
        if name.parts[0] in without or "__pycache__" in name.parts or name.suffix == ".pyc":
            continue
        total.update(f"{name.as_posix()} {_sha(file.read_bytes())}\n".encode())
    return total.hexdigest()


def _sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _tree(folder: Path) -> str:
    """Names and contents of a folder's source files, in a fixed order."""
    digest = hashlib.sha256()
    for path in sorted(p for p in folder.rglob("*") if p.suffix in _SUFFIXES and p.is_file()):
        digest.update(f"{path.relative_to(folder).as_posix()} {_sha(path.read_bytes())}\n".encode())
    return digest.hexdigest()


def _git(source: Path, *words: str) -> str | None:
    git = shutil.which("git")
    if git is None:
        return None
    done = subprocess.run([git, "-C", str(source), *words], capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else None


def _overlay(source: Path, folder: Path | None) -> dict[str, str | None]:
    """Commit and difference of a checkout; outside of git, the digest of its files."""
    if not holds_verl(source):
        raise EnvironmentDiffersError(
            f"{source} holds no verl",
            where="--verl-source",
            why="there is no verl/__init__.py in it",
            todo="give the root of a verl checkout",
        )
    commit = _git(source, "rev-parse", "HEAD")
    difference = _git(source, "diff", "HEAD", "--", "verl")
    if difference and folder is not None:
        replace_text(folder / "verl.diff", difference, what="keep the overlay's difference")
    return {
        "commit": commit.strip() if commit else None,
        "diff": _sha(difference.encode()) if difference else None,
        "files": _tree(source / "verl"),
    }
