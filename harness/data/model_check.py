"""Is this a model folder that verl can start from? Looks at files and headers, loads no weights."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import ModelError, Problem

_LFS = b"version https://git-lfs.github.com/spec"
# One of these sets of files makes a tokenizer: fast, SentencePiece, byte-level BPE, WordPiece.
_TOKENIZERS = (("tokenizer.json",), ("tokenizer.model",), ("vocab.json", "merges.txt"), ("vocab.txt",))


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What a model folder says of itself."""

    folder: Path
    model_type: str
    architectures: tuple[str, ...]
    weight_files: tuple[str, ...]
    weight_bytes: int


def check(folder: Path) -> Summary:
    """Check config, tokenizer files and weights; raises :class:`ModelError` with all problems at once."""
    if not folder.is_dir():
        raise ModelError(_not_a_folder(folder))
    problems: list[Problem] = []
    config = _config(folder, problems)
    _tokenizer(folder, problems)
    weights = _weights(folder, problems)
    if problems:
        raise ModelError(*problems)
    return Summary(
        folder=folder,
        model_type=str(config["model_type"]),
        architectures=tuple(config.get("architectures") or ()),
        weight_files=tuple(path.name for path in weights),
        weight_bytes=sum(path.stat().st_size for path in weights),
    )


def _not_a_folder(folder: Path) -> Problem:
    if folder.is_file():
        todo = (
            "convert it to a model folder first"
            if folder.suffix == ".gguf"
            else "give the folder that it is in"
        )
        return Problem(what="this is a file, not a model folder", where=str(folder), todo=todo)
    return Problem(
        what="there is no such model folder",
        where=str(folder),
        why="a model is named by its folder; nothing is downloaded during a run",
        todo="check the path, or download the model first and give its folder",
    )


def _config(folder: Path, problems: list[Problem]) -> dict[str, Any]:
    path = folder / "config.json"
    if not path.is_file():
        problems.append(
            Problem(
                what="no config.json",
                where=str(folder),
                why="it names the model's architecture",
                todo="complete the folder",
            )
        )
        return {}
    config = _read_json(path, problems)
    if config is not None and not config.get("model_type"):
        problems.append(Problem(what="config.json names no model_type", where=f"{path}:model_type"))
    return config or {}


def _tokenizer(folder: Path, problems: list[Problem]) -> None:
    if not any(all((folder / name).is_file() for name in names) for names in _TOKENIZERS):
        sets = ", or ".join(" with ".join(names) for names in _TOKENIZERS)
        why = f"the folder has none of: {sets}"
        todo = "save the tokenizer into the same folder: tokenizer.save_pretrained(folder)"
        problems.append(Problem(what="no tokenizer files", where=str(folder), why=why, todo=todo))
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.json", "generation_config.json"):
        if (folder / name).is_file():
            _read_json(folder / name, problems)


def _weights(folder: Path, problems: list[Problem]) -> list[Path]:
    for pattern, check_one in (("*.safetensors", _safetensors), ("pytorch_model*.bin", _pointer)):
        indexes = sorted(folder.glob(f"{pattern}.index.json"))
        wanted = {folder / name for index in indexes for name in _shards(index, problems)}
        present = set(folder.glob(pattern))
        problems.extend(
            Problem(
                what="a part of the weights is missing", where=str(path), why=f"{indexes[0].name} names it"
            )
            for path in sorted(wanted - present)
        )
        if wanted or present:
            found = [check_one(path) for path in sorted(present)]
            problems.extend(problem for problem in found if problem)
            return sorted(present)
    problems.append(
        Problem(
            what="no weights",
            where=str(folder),
            why="the folder has neither *.safetensors nor pytorch_model*.bin",
            todo="complete the folder",
        )
    )
    return []


def _shards(index: Path, problems: list[Problem]) -> set[str]:
    document = _read_json(index, problems) or {}
    return set(document.get("weight_map", {}).values())


def _pointer(path: Path) -> Problem | None:
    """Recognise what git leaves in place of a large file that was not fetched."""
    with path.open("rb") as file:
        if file.read(len(_LFS)) != _LFS:
            return None
    return Problem(
        what="this is a Git LFS pointer, not the weights", where=str(path), todo="run: git lfs pull"
    )


def _safetensors(path: Path) -> Problem | None:
    """Check the header: 8 bytes of length, JSON, and then as many bytes as the last offset says."""
    if pointer := _pointer(path):
        return pointer
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        try:
            header = json.loads(file.read(length)) if 0 < length <= size - 8 else None
            ends = [
                entry["data_offsets"][1] for name, entry in (header or {}).items() if name != "__metadata__"
            ]
        except (ValueError, KeyError, TypeError, AttributeError):
            header = None
    if header is None:
        return Problem(
            what="not a safetensors file, or cut in its header", where=str(path), todo="copy it again"
        )
    expected = 8 + length + max(ends, default=0)
    if size == expected:
        return None
    return Problem(
        what=f"the weights are cut: {size} bytes of {expected}", where=str(path), todo="copy it again"
    )


def _read_json(path: Path, problems: list[Problem]) -> dict[str, Any] | None:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        where = f"{path}:{error.lineno}" if isinstance(error, json.JSONDecodeError) else str(path)
        problems.append(Problem(what=f"{path.name} is not readable JSON", where=where, why=str(error)))
        return None
    if isinstance(document, dict):
        return document
    problems.append(Problem(what=f"{path.name} is not a JSON object", where=str(path)))
    return None


def tokenizer_of(model: str) -> Any:
    """The tokenizer of ``tiny`` or of a model folder, whose weights need not be there.

    Raises :class:`ModelError`.
    """
    if model == "tiny":
        from harness.data import tiny_tokenizer

        return tiny_tokenizer.make()
    folder = Path(model).expanduser()
    if not folder.is_dir():
        raise ModelError(_not_a_folder(folder))
    return load_tokenizer(folder)


def load_tokenizer(folder: Path) -> Any:
    """Load the tokenizer as verl does, without any code from the folder; raises :class:`ModelError`."""
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
    except Exception as error:  # transformers raises what it likes here
        raise ModelError(
            "the tokenizer cannot be loaded",
            where=str(folder),
            why=f"{type(error).__name__}: {error}",
            todo="check the tokenizer files in the folder",
        ) from error
