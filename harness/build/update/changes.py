"""What could be newer in a profile: its pins on the index, its date, its base, the actions of CI."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from harness.build.index import Index, Release
from harness.build.update.edits import Edit
from harness.build.update.newer import newest, newest_tag
from harness.errors import LockError
from harness.profiles import Profile, root
from harness.profiles.tree import Path_, Place, read_file

_USES = re.compile(r"uses: (?P<action>[\w.-]+/[\w.-]+)@(?P<commit>[0-9a-f]{40}) # (?P<tag>v[\d.]+)")
_PINS = ("verl", "transformers", "ray", "tensordict")
BASE = "base"


@dataclass(frozen=True, kw_only=True)
class Change:
    """One proposal, and the edits that make it."""

    name: str
    current: str
    proposed: str
    edits: tuple[Edit, ...]


@dataclass(frozen=True, kw_only=True)
class Unknown:
    """Something that could not be looked up, and why."""

    name: str
    why: str


Found = Change | Unknown


def find(profile: Profile, index: Index, *, today: str) -> Iterator[Found]:
    """All that is newer; ``today`` is the date that the profile's cut-off would move to."""
    for name in _PINS:
        yield from _guarded(name, lambda name=name: _pin(profile, name, index))  # type: ignore[misc]
    yield from _guarded("installer", lambda: _installer(profile, index))
    yield from _guarded("torch", lambda: _torch(profile, index))
    yield from _date(profile, today)
    if profile.image.base == "bootstrap":
        yield Change(name=BASE, current="base.lock", proposed="today's packages", edits=())


def actions(folder: Path, tags: Callable[[str], dict[str, str]]) -> Iterator[Found]:
    """Newer actions in the workflows; ``tags`` gives a repository's tags and the commit of each."""
    edits: dict[tuple[str, str], list[Edit]] = {}
    for path in sorted(folder.glob("*.y*ml")):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if match := _USES.search(line):
                before = f"{match['commit']} # {match['tag']}"
                edit = Edit(file=str(path.relative_to(root())), line=number, before=before, after="")
                edits.setdefault((match["action"], match["tag"]), []).append(edit)
    for (action, tag), places in edits.items():
        yield from _guarded(action, lambda a=action, t=tag, p=places: _action(a, t, p, tags))  # type: ignore[misc]


def remote_tags(action: str) -> dict[str, str]:
    """Tag to commit of an action's public repository, by git.

    Raises:
        LockError: it does not answer.
    """
    address = f"https://github.com/{action}"
    asked = ["git", "ls-remote", "--tags", address]
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "GIT_TERMINAL_PROMPT": "0"}
    try:
        done = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=30, env=environment)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LockError(f"{address} does not answer", why=str(error)) from None
    if done.returncode:
        raise LockError(f"{address} does not answer", why=done.stderr.strip()[-200:] or None)
    return tags_of(done.stdout)


def tags_of(listing: str) -> dict[str, str]:
    """What ``git ls-remote --tags`` prints; an annotated tag's commit has its own line (``^{}``). Pure."""
    found: dict[str, str] = {}
    for line in listing.splitlines():
        commit, _, name = line.partition("\trefs/tags/")
        if name.endswith("^{}"):
            found[name.removesuffix("^{}")] = commit
        elif name:
            found.setdefault(name, commit)
    return found


def _guarded(name: str, look: Callable[[], Iterator[Found]]) -> Iterator[Found]:
    try:
        yield from look()
    except LockError as error:
        yield Unknown(name=name, why=error.problems[0].what)


def _pin(profile: Profile, name: str, index: Index) -> Iterator[Found]:
    current = str(getattr(profile.software, name))
    if release := newest(current, index.releases(name)):
        yield _dated(profile, name, current, release, ("software", name))


def _installer(profile: Profile, index: Index) -> Iterator[Found]:
    name, _, current = profile.software.installer.partition("==")
    if current and (release := newest(current, index.releases(name))):
        edit = _edit(profile, ("software", "installer"), current, release.version)
        newer = _later(release, profile.software.exclude_newer_tools or profile.software.exclude_newer)
        key = "exclude_newer_tools" if profile.software.exclude_newer_tools else "exclude_newer"
        old = str(getattr(profile.software, key))
        more = [_edit(profile, ("software", key), old, newer)] if newer else []
        yield Change(name="installer", current=current, proposed=release.version, edits=(edit, *more))


def _torch(profile: Profile, index: Index) -> Iterator[Found]:
    for number, target in enumerate(profile.software.targets):
        name = f"torch ({target.name})"
        if target.torch.hashes:
            why = f"it is held by hashes of {target.torch.index}; take them from there by hand"
            yield Unknown(name=name, why=why)
        elif release := newest(target.torch.version, index.releases("torch")):
            path = ("software", "targets", number, "torch", "version")
            yield _dated(profile, name, target.torch.version, release, path)


def _dated(profile: Profile, name: str, current: str, release: Release, path: Path_) -> Change:
    """The pin, and the profile's date with it where the release is younger than that."""
    edits = [_edit(profile, path, current, release.version)]
    cutoff = profile.software.exclude_newer
    if later := _later(release, cutoff):
        edits.append(_edit(profile, ("software", "exclude_newer"), cutoff, later))
    return Change(name=name, current=current, proposed=release.version, edits=tuple(edits))


def _later(release: Release, cutoff: str) -> str | None:
    """The day after the upload, if the cut-off is before it."""
    if release.uploaded is None:
        return None
    uploaded = datetime.fromisoformat(release.uploaded)
    if uploaded < datetime.fromisoformat(cutoff):
        return None
    day = datetime.fromordinal(uploaded.toordinal() + 1)
    return f"{day:%Y-%m-%d}T00:00:00Z"


def _date(profile: Profile, today: str) -> Iterator[Found]:
    cutoff = profile.software.exclude_newer
    if cutoff < today:
        edit = _edit(profile, ("software", "exclude_newer"), cutoff, today)
        yield Change(name="exclude_newer", current=cutoff, proposed=today, edits=(edit,))


def _action(
    action: str, tag: str, places: Sequence[Edit], tags: Callable[[str], dict[str, str]]
) -> Iterator[Found]:
    there = tags(action)
    if best := newest_tag(tag, there):
        after = f"{there[best]} # {best}"
        edits = tuple(Edit(file=e.file, line=e.line, before=e.before, after=after) for e in places)
        yield Change(name=action, current=tag, proposed=best, edits=edits)


def _edit(profile: Profile, path: Path_, before: str, after: str) -> Edit:
    place = _written(profile.name, path)
    return Edit(file=place.file, line=place.line, before=before, after=after)


def _written(name: str, path: Path_) -> Place:
    """Where a value is written: in the profile's file, or in one that it extends.

    Raises:
        LockError: nowhere.
    """
    while name:
        file = f"profiles/{name}.yaml"
        tree = read_file(root() / file, file=file)
        if path in tree.places:
            return tree.places[path]
        name = str(tree.data.get("extends") or "")
    raise LockError(f"{'.'.join(map(str, path))} is written in no profile")
