"""The catalogue of failure signatures: ours, and those that a user keeps beside the project."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from harness.diagnose.lines import Line
from harness.diagnose.signature import CatalogueFile, Kind, Signature, compiled, joined
from harness.errors import DiagnoseError, Problem

OURS = Path(__file__).with_name("signatures.yaml")
THEIRS = "verlock-signatures.yaml"


@dataclass(frozen=True, kw_only=True)
class Catalogue:
    """All signatures, the user's first: who wrote one for a failure means it."""

    files: tuple[CatalogueFile, ...]

    @cached_property
    def signatures(self) -> tuple[Signature, ...]:
        """In the order in which they are tried."""
        return tuple(signature for file in self.files for signature in file.signatures)

    @cached_property
    def kinds(self) -> tuple[Kind, ...]:
        """What tells the class of an error that no signature knows, in the order in which they are tried."""
        return tuple(kind for file in self.files for kind in file.kinds)

    def wraps(self, message: str) -> bool:
        """Whether an error's message is known to hide another error."""
        text = joined(message)
        return any(
            compiled(pattern).search(text)
            for file in self.files
            for wrapper in file.wrappers
            for pattern in wrapper.patterns
        )

    def fatal(self, lines: Sequence[Line]) -> Line | None:
        """The first line that says that a process was ended, whatever traceback came before."""
        patterns = [compiled(pattern) for file in self.files for pattern in file.fatal]
        return next((line for line in lines if any(p.search(line.text) for p in patterns)), None)


def load(project: Path | None = None) -> Catalogue:
    """Our signatures, and those of ``verlock-signatures.yaml`` in ``project`` or a folder above it."""
    theirs = beside(project) if project is not None else None
    paths = [*([theirs] if theirs else []), OURS]
    return Catalogue(files=tuple(read(path) for path in paths))


def beside(project: Path) -> Path | None:
    """The user's own catalogue: the nearest at or above ``project``."""
    here = project.resolve()
    return next((f / THEIRS for f in (here, *here.parents) if (f / THEIRS).is_file()), None)


def read(path: Path) -> CatalogueFile:
    """One file, checked.

    Raises:
        DiagnoseError: with everything that is wrong with it.
    """
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DiagnoseError("cannot read the signatures", where=str(path), why=str(error.strerror)) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise DiagnoseError("the signatures are not YAML", where=str(path), why=str(error)) from error
    return check({} if document is None else document, path)


def check(document: Any, path: Path) -> CatalogueFile:
    """Validate a parsed file; the model's problems, and ids that are there twice."""
    try:
        file = CatalogueFile.model_validate(document)
    except ValidationError as error:
        raise DiagnoseError(
            *(
                Problem(
                    what=problem["msg"],
                    where=f"{path}:{'.'.join(map(str, problem['loc']))}",
                    todo="see harness/diagnose/signatures.schema.json",
                )
                for problem in error.errors()
            )
        ) from None
    ids = [signature.id for signature in file.signatures]
    twice = sorted({id_ for id_ in ids if ids.count(id_) > 1})
    if twice:
        raise DiagnoseError(*(f"{path}: {id_} is there twice" for id_ in twice))
    return file
