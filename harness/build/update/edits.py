"""Changing one value in a file that people write: the rest of it, comments and all, stays as it is."""

from __future__ import annotations

import re
from dataclasses import dataclass

from harness.errors import ProfileError


@dataclass(frozen=True, kw_only=True)
class Edit:
    """Another value on one line of a file, which is named from the repository's root."""

    file: str
    line: int
    before: str
    after: str


def apply(text: str, edit: Edit) -> str:
    """The text with the edit made. Pure.

    Raises:
        ProfileError: the value does not stand on that line, or more than once.
    """
    lines = text.splitlines(keepends=True)
    line = lines[edit.line - 1] if edit.line <= len(lines) else ""
    # A comment at the end of the line may repeat the value; an action's version is itself a comment.
    value, comment = (line, "") if "#" in edit.before else _split(line)
    found = re.findall(rf"(?<![\w.+-]){re.escape(edit.before)}(?![\w.+-])", value)
    if len(found) != 1:
        raise ProfileError(
            f"{edit.before} stands {len(found)} times on this line, and it should be changed once",
            where=f"{edit.file}:{edit.line}",
            todo="write one key a line",
        )
    lines[edit.line - 1] = value.replace(edit.before, edit.after) + comment
    return "".join(lines)


def _split(line: str) -> tuple[str, str]:
    head, mark, tail = line.partition(" #")
    return head, mark + tail
