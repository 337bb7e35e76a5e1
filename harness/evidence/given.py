"""What a run was given from outside: its folder, the variables that steer verl, and the files it names.

A command alone cannot be run again: ``--reward judge.py:score`` means another file in another folder, and
the same file may have been edited since.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from harness.errors import Problem
from harness.evidence.model import Given

# What verl, Ray, torch and the libraries below them read. Whatever may hold a secret is never recorded.
_PREFIXES = (
    "CUDA_",
    "GLOO_",
    "HF_HUB_",
    "MKL_",
    "NCCL_",
    "OMP_",
    "PYTORCH_",
    "RAY_",
    "TOKENIZERS_",
    "TORCH_",
    "TRANSFORMERS_",
    "VERL_",
)
_SECRET = ("AUTH", "CREDENTIAL", "KEY", "PASSW", "SECRET", "TOKEN")
# Not what a user sets: what a climb hands to its own children.
_OWN = frozenset({"VERL_FILE_LOGGER_PATH"})
_WHOLE = 64 << 20
_PIECE = 1 << 20


def of(named: Iterable[Path], environ: Mapping[str, str]) -> Given:
    """What this process was given; ``named`` are the files and folders that its options name."""
    files = {str(path): digest(path) for path in map(_absolute, named) if path.exists()}
    return Given(folder=str(Path.cwd()), variables=variables(environ), files=dict(sorted(files.items())))


def variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Those that steer a run, without any whose name says that it holds a secret."""
    return {
        name: value
        for name, value in sorted(environ.items())
        if name.startswith(_PREFIXES)
        and name not in _OWN
        and not any(word in name.removeprefix("TOKENIZERS_") for word in _SECRET)
    }


def named(overrides: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Each override that names a file or folder of this machine, and the name in it."""
    for text in overrides:
        for word in text.partition("=")[2].strip("[]").split(","):
            name = word.strip(" '\"")
            if "/" in name and Path(name).expanduser().exists():
                yield text, name


def digest(path: Path) -> str:
    """SHA-256 of a file, or of a folder's names and files.

    Of a file above 64 MiB (weights) its size, head and tail stand for the whole, and the digest says so:
    reading a model of 15 GB would take longer than the climb.
    """
    if path.is_file():
        return _file(path)
    total, sampled = hashlib.sha256(), False
    for file in sorted(one for one in path.rglob("*") if one.is_file()):
        one = _file(file)
        sampled |= one.startswith("sampled:")
        total.update(f"{file.relative_to(path).as_posix()} {one}\n".encode())
    return f"{'sampled:' if sampled else ''}{total.hexdigest()}"


def changed(given: Given) -> Iterator[Problem]:
    """The files of a recorded run that are gone or are other files now."""
    for name, before in given.files.items():
        path = Path(name)
        if not path.exists():
            yield Problem(
                what=f"{path.name} is not there any more", where=name, todo="bring it back, or climb anew"
            )
        elif digest(path) != before:
            yield Problem(
                what=f"{path.name} was changed since the run",
                where=name,
                why=f"its digest was {before[:20]}, and is {digest(path)[:20]}",
                todo="bring back what it was, or --anyway to see what the change does",
            )


def _file(path: Path) -> str:
    size = path.stat().st_size
    with path.open("rb") as file:
        if size <= _WHOLE:
            return hashlib.file_digest(file, "sha256").hexdigest()
        total = hashlib.sha256(f"{size}\n".encode() + file.read(_PIECE))
        file.seek(-_PIECE, os.SEEK_END)
        total.update(file.read())
        return f"sampled:{total.hexdigest()}"


def _absolute(path: Path) -> Path:
    return path.expanduser().absolute()
