"""An image by digest, in the spellings of those who run it. A tag can move, so none is taken."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

from harness.errors import HandoffError

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
# The grammar of the distribution project, without its tag.
_HOST = r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?)(?::[0-9]+)?"
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REPOSITORY = re.compile(rf"(?:{_HOST}/)?{_PART}(?:/{_PART})*")
_TODO = (
    "name it by digest: REPOSITORY@sha256:... (`docker inspect`, `skopeo inspect` and image.json say which)"
)


@dataclass(frozen=True, kw_only=True)
class Reference:
    """A repository, with its registry if it has one, and a digest."""

    repository: str
    digest: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``REPOSITORY@sha256:...``.

        Raises:
            HandoffError: a tag instead of a digest, beside it, or something else.
        """
        name, at, digest = text.partition("@")
        if not at:
            raise HandoffError(
                f"{text!r} names no digest", why="a tag can be moved to another image", todo=_TODO
            )
        return cls.of(name, digest)

    @classmethod
    def of(cls, repository: str, digest: str) -> Self:
        """Put the two together; refuses what :meth:`parse` refuses."""
        if not _DIGEST.fullmatch(digest):
            raise HandoffError(
                f"{digest!r} is no digest", why="it takes sha256: and 64 hexadecimal digits", todo=_TODO
            )
        if ":" in repository.rpartition("/")[2]:
            raise HandoffError(
                f"{repository!r} has a tag",
                why="a tag beside a digest says nothing, and some engines follow the tag",
                todo=_TODO,
            )
        if not _REPOSITORY.fullmatch(repository):
            raise HandoffError(
                f"{repository!r} is no repository",
                why="it has to be [HOST[:PORT]/]path in lower case",
                todo=_TODO,
            )
        return cls(repository=repository, digest=digest)

    def __str__(self) -> str:
        return f"{self.repository}@{self.digest}"

    @property
    def registry(self) -> str | None:
        """The host, where the first part of the name is one (docker's rule: a dot, a port, or localhost)."""
        first, slash, _ = self.repository.partition("/")
        return first if slash and ("." in first or ":" in first or first == "localhost") else None

    @property
    def path(self) -> str:
        """The repository without its registry."""
        return self.repository.removeprefix(f"{self.registry}/")

    @property
    def enroot_3(self) -> str:
        """For enroot before 4, whose grammar has no ``@digest``: it takes one where the tag stands."""
        return f"{self._enroot}:{self.digest}"

    @property
    def enroot_4(self) -> str:
        """For enroot from 4 on."""
        return f"{self._enroot}@{self.digest}"

    @property
    def _enroot(self) -> str:
        return f"{self.registry}#{self.path}" if self.registry else self.path
