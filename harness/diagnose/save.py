"""``diagnose --save-signature``: what a user has learnt of a failure, kept beside the project.

The file is the user's own: comments and order stay, nothing is replaced, and the whole is checked before
it takes the old one's place.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from harness.diagnose import catalogue
from harness.diagnose.catalogue import THEIRS
from harness.diagnose.signature import UNKNOWN, Signature, compiled, joined
from harness.errors import DiagnoseError, Problem
from harness.evidence.files import replace_text

_HEAD = "# Failures of this project that `verlock diagnose` knows. Yours to edit.\n\nsignatures:\n"
# Numbers, addresses, paths and quoted names differ from run to run.
_OPTIONS = {"id": "--save-signature", "patterns": "--pattern"}  # else the field's own name
_VARIES = re.compile(r"0x[0-9a-f]+|(?:/[\w.\-]+){2,}|\d+(?:\.\d+)?")


def pattern_of(message: str) -> str:
    """A pattern for the first line of a message, with what differs from run to run left open."""
    first = message.strip().split("\n")[0][:200]
    parts, end = [], 0
    for varies in _VARIES.finditer(first):
        parts += [_literal(first[end : varies.start()]), r"\S+"]
        end = varies.end()
    return "".join([*parts, _literal(first[end:])])


def _literal(text: str) -> str:
    return re.escape(text).replace(r"\ ", " ")


def save(fields: Mapping[str, Any], message: str, project: Path, *, told: str = UNKNOWN) -> Path:
    """Append one signature to ``verlock-signatures.yaml``; it must match the failure it was made from.

    ``told`` is the signature that knows the failure already.

    Raises:
        DiagnoseError: the signature is not valid, its id is taken, it does not match ``message``, or
            another one in the file does.
    """
    path = project / THEIRS
    _valid(fields)
    with _alone(project):
        old = path.read_text(encoding="utf-8") if path.exists() else _HEAD
        if path.exists() and fields["id"] in _ids(old):
            raise DiagnoseError(
                f"the file has a signature {fields['id']} already",
                where=str(path),
                why="nothing of yours is replaced",
                todo="choose another name, or edit it there",
            )
        new = _with(old, fields, path)
        file = catalogue.check(yaml.safe_load(new), path)
        added = next(s for s in file.signatures if s.id == fields["id"])
        if told != added.id and told in {s.id for s in file.signatures}:
            raise DiagnoseError(
                f"the file knows this failure already, as {told}", where=str(path), todo="edit it there"
            )
        _must_match(added, message, path)
        taken = {s.id for s in catalogue.read(catalogue.OURS).signatures}
        if added.id in taken:
            raise DiagnoseError(
                f"{added.id} is one of verlock's own signatures", where=str(path), todo="choose another name"
            )
        replace_text(path, new, what="write the signatures")
    return path


def _valid(fields: Mapping[str, Any]) -> None:
    """Each fault of what was given, under the option that gave it."""
    try:
        Signature.model_validate(fields)
    except ValidationError as error:
        raise DiagnoseError(
            *(
                Problem(what=problem["msg"], where=_OPTIONS.get(name := str(problem["loc"][0]), f"--{name}"))
                for problem in error.errors()
            )
        ) from None


def _ids(text: str) -> set[str]:
    """The ids that a file has; none where it is no catalogue, which is told later."""
    try:
        listed = (yaml.safe_load(text) or {})["signatures"] or []
        return {str(item["id"]) for item in listed}
    except (yaml.YAMLError, KeyError, TypeError):
        return set()


def _must_match(added: Signature, message: str, path: Path) -> None:
    if not any(compiled(pattern).search(joined(message)) for pattern in added.patterns):
        raise DiagnoseError(
            "the pattern does not match this failure",
            where=str(path),
            why=f"the cause in the log is: {message.splitlines()[0] if message else '(none)'}",
            todo="give --pattern a regular expression that is found in it",
        )


def _with(old: str, fields: Mapping[str, Any], path: Path) -> str:
    """The file's text with one item more, at the end of its list; all else stays as it is."""
    try:
        root = yaml.compose(old)
    except yaml.YAMLError as error:
        raise DiagnoseError("the signatures are not YAML", where=str(path), why=str(error)) from error
    item = yaml.safe_dump([dict(fields)], sort_keys=False, allow_unicode=True, width=1000)
    if root is None:
        return old.rstrip("\n") + "\nsignatures:\n" + _indented(item, 2)
    pairs = {key.value: value for key, value in root.value} if isinstance(root, yaml.MappingNode) else {}
    listed = pairs.get("signatures")
    if isinstance(listed, yaml.SequenceNode) and not listed.flow_style and listed.value:
        lines = old.splitlines(keepends=True)
        at = _last_line(listed.value[-1], lines)
        lines[at - 1] = lines[at - 1].rstrip("\n") + "\n"
        column = max(listed.start_mark.column, 0)
        return "".join([*lines[:at], _indented(item, column), *lines[at:]])
    if isinstance(listed, yaml.ScalarNode) and not listed.value and list(pairs)[-1] == "signatures":
        return old.rstrip("\n") + "\n" + _indented(item, 2)
    raise DiagnoseError(
        "cannot tell where to add a signature",
        where=str(path),
        why="`signatures:` is not a list with one item below the other",
        todo="write `signatures:` as the file's last key, with nothing after it, and try again",
    )


def _last_line(node: yaml.Node, lines: list[str]) -> int:
    """The number of the last line of a node: its end mark may lie after blank lines and comments."""
    at = min(node.end_mark.line + (1 if node.end_mark.column else 0), len(lines))
    while at > 1 and (not lines[at - 1].strip() or lines[at - 1].lstrip().startswith("#")):
        at -= 1
    return at


def _indented(text: str, columns: int) -> str:
    return "".join(" " * columns + line if line.strip() else line for line in text.splitlines(keepends=True))


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One writer at a time: two commands that append at once must both be kept."""
    try:
        held = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise DiagnoseError("no such folder", where=str(folder), why=str(error.strerror)) from error
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        os.close(held)
