"""Layers as changes of a tree: what an engine wrote down is applied, and the smallest change is written.

Engines disagree on what a layer mentions (parents that did not change, files that were touched only, how a
folder's disappearance is said). Applied to the layers below, they all give the same tree, so the canonical
layer is the difference between the two trees.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator, Mapping

from harness.build.image.entries import FOLDER, Entry, path_of, read

WHITEOUT = ".wh."
OPAQUE = ".wh..wh..opq"

Tree = Mapping[str, Entry]


def apply(below: Tree, archive: tarfile.TarFile, layer: int) -> dict[str, Entry]:
    """The tree after ``archive``, the layer number ``layer``, is laid over the tree ``below``."""
    members = [(path_of(member.name), member) for member in archive]
    tree = _without(below, [path for path, _ in members])
    links: list[tuple[str, tarfile.TarInfo]] = []
    replaced: set[str] = set()
    for path, member in members:
        if not path or _name(path).startswith(WHITEOUT):
            continue
        if member.islnk():
            links.append((path, member))
            continue
        entry = read(archive, member, layer)
        old = tree.get(path)
        if old is not None and old.is_folder and not entry.is_folder:
            replaced.add(path)
        tree[path] = entry
    if replaced:
        tree = {path: entry for path, entry in tree.items() if replaced.isdisjoint(_parents(path))}
    for path, member in links:
        tree[path] = _linked(tree, member)
    for path in list(tree):
        for parent in _parents(path):
            tree.setdefault(parent, FOLDER)
    return tree


def difference(below: Tree, above: Tree) -> Iterator[tuple[str, Entry | None]]:
    """Path and entry of what ``above`` adds or changes, ``None`` for what it takes away; parents first.

    Hard links come out as entries with the same ``inode``.
    """
    changed: dict[str, Entry | None] = {}
    for path, entry in above.items():
        old = below.get(path)
        if old is not entry and (old is None or not entry.same(old)):
            changed[path] = entry
    for path in below.keys() - above.keys():
        # What lies in a folder that went away, or that became a file, went with it.
        parent = path.rpartition("/")[0]
        if parent == "" or (parent in above and above[parent].is_folder):
            changed[path] = None
    yield from sorted(changed.items(), key=lambda item: item[0].split("/"))


def write(changes: Iterator[tuple[str, Entry | None]], archive: tarfile.TarFile, *, epoch: int) -> int:
    """Write a canonical layer; return how many entries it has."""
    first: dict[tuple[int, str], str] = {}
    count = 0
    for path, entry in changes:
        count += 1
        if entry is None:
            parent, _, name = path.rpartition("/")
            info = _info(f"{parent}/{WHITEOUT}{name}" if parent else f"{WHITEOUT}{name}", epoch)
            archive.addfile(info)
            continue
        info = _info(path, epoch, entry)
        if entry.inode is not None and entry.inode in first:
            info.type, info.linkname = tarfile.LNKTYPE, first[entry.inode]
            archive.addfile(info)
            continue
        if entry.inode is not None:
            first[entry.inode] = path
        _add(archive, info, entry)
    return count


def _add(archive: tarfile.TarFile, info: tarfile.TarInfo, entry: Entry) -> None:
    if entry.content is None:
        archive.addfile(info)
        return
    info.size = entry.content.size
    source = entry.content.archive.extractfile(entry.content.member)
    archive.addfile(info, source)


def _info(path: str, epoch: int, entry: Entry | None = None) -> tarfile.TarInfo:
    info = tarfile.TarInfo(path)
    info.mtime = epoch
    if entry is not None:
        info.type, info.mode, info.linkname = entry.kind, entry.mode, entry.target
        info.uid, info.gid = entry.uid, entry.gid
        info.devmajor, info.devminor = entry.device
        info.pax_headers = dict(entry.attributes)
    return info


def _without(below: Tree, paths: list[str]) -> dict[str, Entry]:
    """What the layer's whiteouts leave of the tree below. They never concern the layer's own entries."""
    opaque = {path.rpartition("/")[0] for path in paths if _name(path) == OPAQUE}
    gone = {
        f"{path.rpartition('/')[0]}/{_name(path).removeprefix(WHITEOUT)}".lstrip("/")
        for path in paths
        if _name(path).startswith(WHITEOUT) and not _name(path).startswith(WHITEOUT * 2)
    }
    if not opaque and not gone:
        return dict(below)

    def stays(path: str) -> bool:
        parents = _parents(path)
        return path not in gone and gone.isdisjoint(parents) and opaque.isdisjoint(["", *parents])

    return {path: entry for path, entry in below.items() if stays(path)}


def _linked(tree: Tree, member: tarfile.TarInfo) -> Entry:
    target = tree.get(path_of(member.linkname))
    if target is None or target.kind != tarfile.REGTYPE:
        raise tarfile.ReadError(f"{member.name} is a hard link to {member.linkname}, which is no file")
    return target


def _parents(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:end]) for end in range(1, len(parts))]


def _name(path: str) -> str:
    return path.rpartition("/")[2]
