"""A checkpoint on disk, as verl's FSDP manager lays it out: is it all there, and is it whole?

``torch.load`` does not compare a checksum: a flipped bit in a weight is loaded without a word. The files are
zip archives, and each entry of a zip has one (CRC-32), which is compared here.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.errors import ModelError, Problem

TRACKER = "latest_checkpointed_iteration.txt"
_TODO = (
    "resume from an older step: trainer.resume_mode=resume_path trainer.resume_from_path=.../global_step_N"
)
# verl's words for what a checkpoint holds, and the names of its files.
_FILES = {"model": "model", "optimizer": "optim", "extra": "extra_state"}
PARTS = tuple(_FILES.values())


def folder_of(saved: Path, step: int) -> Path:
    """Where verl puts the checkpoint of one step."""
    return saved / f"global_step_{step}"


def latest(saved: Path) -> Path | None:
    """What verl resumes from with ``resume_mode=auto``: the step that its tracker file names."""
    try:
        step = int((saved / TRACKER).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise ModelError(
            "the tracker file holds no step", where=str(saved / TRACKER), why=str(error), todo=_TODO
        ) from error
    return folder_of(saved, step)


def shards(folder: Path, role: str, ranks: int, parts: tuple[str, ...] = PARTS) -> list[Path]:
    """The files that each rank of a role writes."""
    return [
        folder / role / f"{part}_world_size_{ranks}_rank_{rank}.pt" for part in parts for rank in range(ranks)
    ]


def check(folder: Path, *, roles: tuple[str, ...], ranks: int, parts: tuple[str, ...] = PARTS) -> None:
    """Read all files of the checkpoint.

    Raises :class:`ModelError` with each file that is missing or damaged: found by verl, it is a traceback in
    a Ray worker after half a minute, or nothing at all.
    """
    wanted = [path for role in roles for path in shards(folder, role, ranks, parts)] + [folder / "data.pt"]
    problems = [problem for path in wanted for problem in damage(path)]
    if problems:
        raise ModelError(*problems)


def check_resume(config: Any, roles: tuple[str, ...]) -> None:
    """Check what a run with verl's configuration ``config`` resumes from, if it does.

    Raises what :func:`check` raises.
    """
    trainer = config.trainer
    if trainer.resume_mode == "resume_path":
        folder = Path(str(trainer.resume_from_path))
    else:
        newest = latest(Path(trainer.default_local_dir)) if trainer.resume_mode == "auto" else None
        if newest is None:
            return
        folder = newest
    loaded = config.actor_rollout_ref.actor.checkpoint.load_contents
    parts = tuple(part for name, part in _FILES.items() if name in loaded)
    check(folder, roles=roles, ranks=trainer.nnodes * trainer.n_gpus_per_node, parts=parts)


def damage(path: Path) -> Iterator[Problem]:
    """What is wrong with one file that ``torch.save`` wrote."""
    why = None
    try:
        with zipfile.ZipFile(path) as archive:
            broken = archive.testzip()
        why = f"the checksum of its entry {broken} does not fit" if broken else None
    except FileNotFoundError:
        why = "there is no such file"
    except (OSError, zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, ValueError) as error:
        why = str(error) or type(error).__name__
    if why:
        yield Problem(what="this file of the checkpoint cannot be used", where=str(path), why=why, todo=_TODO)
