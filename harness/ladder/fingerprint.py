"""What the environment is, as one number: profile, lock, the harness's files, and a verl laid over it."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import harness
from harness.errors import EnvironmentDiffersError
from harness.evidence.files import replace_text
from harness.ladder.locked import lock_file
from harness.profiles.model import Profile

_SUFFIXES = frozenset({".py", ".yaml", ".j2", ".html"})


def fingerprint(profile: Profile, verl_source: Path | None, folder: Path) -> dict[str, Any]:
    """The parts and their SHA-256 together. With an overlay, its difference is kept as ``verl.diff``."""
    parts: dict[str, Any] = {
        "profile": _sha(profile.model_dump_json().encode()),
        "lock": _sha(lock_file(profile).read_bytes()),
        "harness": _tree(Path(harness.__file__).parent),
    }
    if verl_source is not None:
        parts["verl_overlay"] = _overlay(verl_source, folder)
    text = json.dumps(parts, sort_keys=True)
    return {"environment": _sha(text.encode()), "parts": parts}


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


def _overlay(source: Path, folder: Path) -> dict[str, str | None]:
    """Commit and difference of a checkout; outside of git, the digest of its files."""
    if not (source / "verl" / "__init__.py").is_file():
        raise EnvironmentDiffersError(
            f"{source} holds no verl",
            where="--verl-source",
            why="there is no verl/__init__.py in it",
            todo="give the root of a verl checkout",
        )
    commit = _git(source, "rev-parse", "HEAD")
    difference = _git(source, "diff", "HEAD", "--", "verl")
    if difference:
        replace_text(folder / "verl.diff", difference, what="keep the overlay's difference")
    return {
        "commit": commit.strip() if commit else None,
        "diff": _sha(difference.encode()) if difference else None,
        "files": _tree(source / "verl"),
    }
