"""A repository of somebody's, read and never written to; each commit is laid out in a folder of our own."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.errors import BisectError, Problem, ToolMissingError
from harness.fingerprint.identity import holds_verl

PACKAGE = "verl"
# Neither the index is refreshed nor a password asked for; the user's hooks and their templates stay out.
_QUIET = {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "GIT_TEMPLATE_DIR": "", "LC_ALL": "C"}


@dataclass(frozen=True, kw_only=True)
class Commit:
    """One commit, for people."""

    sha: str
    title: str
    author: str
    date: str

    def __str__(self) -> str:
        return f"{self.sha[:12]} {self.title}"


@dataclass(frozen=True, kw_only=True)
class Repository:
    """A git checkout that holds verl."""

    path: Path

    def ends(self, text: str) -> tuple[str, str]:
        """The two ends of ``GOOD..BAD``; without BAD it is HEAD.

        Raises:
            BisectError: no such range or commits, or GOOD is no ancestor of BAD.
        """
        good, dots, bad = text.partition("..")
        if not dots or not good or bad.startswith("."):
            raise BisectError(f"{text} is no range", todo="write GOOD..BAD: two commits, branches or tags")
        found, problems = [], []
        for name in (good, bad or "HEAD"):
            done = self._ask("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
            found.append(done.stdout.strip())
            if done.returncode:
                why = done.stderr.strip() or f"git finds none in {self.path}"
                problems.append(Problem(what=f"there is no commit {name}", where="GOOD..BAD", why=why))
        if problems:
            raise BisectError(*problems)
        if self._ask("merge-base", "--is-ancestor", *found).returncode:
            raise BisectError(
                f"{good} is no ancestor of {bad or 'HEAD'}",
                why="between the two there is no line of commits on which something changed",
                todo=f"git merge-base {good} {bad or 'HEAD'} names a commit that is",
            )
        return found[0], self._newest(found[0], found[1])

    def _newest(self, good: str, bad: str) -> str:
        """The commit that last touched verl, where it has the same verl as ``bad``: no run is made twice."""
        newest = self._git("rev-list", "-1", bad, f"^{good}", "--", PACKAGE).strip()
        if not newest:
            raise BisectError(
                "no commit between the two touches verl",
                where=f"{self.path}: {good[:12]}..{bad[:12]}",
                todo="choose another range",
            )
        same = self._ask("diff", "--quiet", newest, bad, "--", PACKAGE).returncode == 0
        return newest if same else bad

    def middle_first(self, good: Sequence[str], bad: str) -> list[str]:
        """The commits that touch verl and may be at fault, the one that halves them best first."""
        said = self._git("rev-list", "--bisect-all", bad, *(f"^{one}" for one in good), "--", PACKAGE)
        return [line.split()[0] for line in said.splitlines() if line]

    def commit(self, sha: str) -> Commit:
        """Title, author and date."""
        said = self._git("show", "--no-patch", "--format=%s%x00%an%x00%cs", sha)
        title, author, date = said.strip().split("\0")
        return Commit(sha=sha, title=title, author=author, date=date)

    def lay_out(self, sha: str, folder: Path) -> None:
        """Make ``folder`` a checkout of the commit, clean; objects are read from the repository."""
        if not (folder / ".git").is_dir():
            objects = self._git("rev-parse", "--path-format=absolute", "--git-path", "objects").strip()
            folder.mkdir(parents=True, exist_ok=True)
            own = Repository(path=folder)
            own._git("init", "--quiet")
            (folder / ".git" / "objects" / "info" / "alternates").write_text(f"{objects}\n", encoding="utf-8")
        own = Repository(path=folder)
        own._git("-c", "core.hooksPath=/dev/null", "checkout", "--quiet", "--force", "--detach", sha)
        own._git("clean", "--quiet", "-ffdx")
        if not holds_verl(folder):
            raise BisectError(
                f"commit {sha[:12]} holds no verl", where=str(self.path), why="no verl/__init__.py is in it"
            )

    def _git(self, *words: str) -> str:
        done = self._ask(*words)
        if done.returncode:
            raise BisectError(
                f"git {words[0]} ended with exit code {done.returncode}",
                where=str(self.path),
                why=done.stderr.strip()[-400:] or None,
                todo="give the root of a verl checkout that git can read",
            )
        return done.stdout

    def _ask(self, *words: str) -> subprocess.CompletedProcess[str]:
        git = shutil.which("git")
        if git is None:
            raise ToolMissingError("git is not installed", todo="install it, for example: apt install git")
        environ = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")} | _QUIET
        return subprocess.run(
            [git, "-C", str(self.path), *words], capture_output=True, text=True, check=False, env=environ
        )
