"""What is newer, where it is written, and how one value is changed: no network."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from harness.build.base_lock import Package
from harness.build.index import Index, Release
from harness.build.lockfile import parse
from harness.build.sources import Sources
from harness.build.update import changes, newer
from harness.build.update.changes import Change, Unknown
from harness.build.update.edits import Edit, apply
from harness.build.web import Web
from harness.errors import LockError, ProfileError
from harness.profiles import load, root

SHA = "0" * 40


@pytest.mark.parametrize(
    ("current", "offered", "expected"),
    [
        ("1.9", ["1.9", "1.10", "1.2"], "1.10"),
        ("1.9", ["1.8", "1.9"], None),
        ("1.9", ["2.0rc1", "2.0.dev3", "1.9.1"], "1.9.1"),
        ("2.13.0+cpu", ["2.13.0", "2.14.0", "2.15.0+cu130"], "2.14.0"),
        ("1.9", ["not-a-version", "1.9.post1"], "1.9.post1"),
        ("1.9", [], None),
    ],
)
def test_the_newest_final_release(current: str, offered: list[str], expected: str | None) -> None:
    found = newer.newest(current, [Release(version=one, uploaded=None) for one in offered])
    assert (found.version if found else None) == expected


@pytest.mark.parametrize(
    ("current", "tags", "expected"),
    [
        ("v4.2.0", ["v4", "v4.10.0", "v4.9.9", "v5.0.0-beta"], "v4.10.0"),
        ("v4.2.0", ["v4.2.0", "v4.1.0"], None),
        ("main", ["v4.2.0"], None),
    ],
)
def test_the_newest_tag(current: str, tags: list[str], expected: str | None) -> None:
    assert newer.newest_tag(current, tags) == expected


def test_the_commit_of_an_annotated_tag_is_the_one_it_points_to() -> None:
    listing = "a\trefs/tags/v1.0.0\nb\trefs/tags/v1.0.0^{}\nc\trefs/tags/v2.0.0\n"
    assert changes.tags_of(listing) == {"v1.0.0": "b", "v2.0.0": "c"}


def test_what_moved_between_two_locks() -> None:
    def lock(**versions: str) -> str:
        return "".join(f"{name}=={v} \\\n    --hash=sha256:{'0' * 64}\n" for name, v in versions.items())

    before = parse(lock(same="1", up="1", gone="1"), file="a")
    after = parse(lock(same="1", up="2", new="1"), file="b")
    assert [one.line() for one in newer.moved(before, after)] == [
        "gone 1 -> (gone)",
        "new (new) -> 1",
        "up 1 -> 2",
    ]
    old = Package(name="libc6", version="1", machine="amd64", sha256="a")
    new = Package(name="libc6", version="2", machine="amd64", sha256="b")
    assert [one.line() for one in newer.moved_packages([old], [new])] == ["libc6 1 -> 2"]


def test_one_value_is_changed_and_all_else_stays() -> None:
    text = "a: 1\nverl: 0.9.1  # since 0.9.1\nb: 2\n"
    edit = Edit(file="f", line=2, before="0.9.1", after="0.10.0")
    assert apply(text, edit) == "a: 1\nverl: 0.10.0  # since 0.9.1\nb: 2\n"


@pytest.mark.parametrize("line", ["verl: 0.9.11", "verl: 0.9.1+cpu", "{ a: 0.9.1, b: 0.9.1 }"])
def test_a_value_that_is_not_there_once_is_not_guessed(line: str) -> None:
    with pytest.raises(ProfileError, match="f:1"):
        apply(f"{line}\n", Edit(file="f", line=1, before="0.9.1", after="0.10.0"))


# --- an index, and workflows ---------------------------------------------------------------------------

PAGES = {
    "verl": [
        ("verl-0.9.1-py3-none-any.whl", "2026-09-01T00:00:00Z", False),
        ("verl-0.10.0.tar.gz", "2026-11-03T09:00:00Z", False),
    ],
    "transformers": [("transformers-99.0-py3-none-any.whl", "2026-09-01T00:00:00Z", True)],
    "ray": [("ray-2.59.0-cp311-cp311-manylinux2014_x86_64.whl", "2026-09-01T00:00:00Z", False)],
    "tensordict": [("tensordict-0.10.1-py3-none-any.whl", "2026-09-02T00:00:00Z", False)],
    "uv": [("uv-0.13.9-py3-none-any.whl", "2026-11-01T00:00:00Z", False)],
}


@pytest.fixture
def index() -> Iterator[Index]:
    """A simple index on this machine; torch is not on it."""

    class Pages(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            page = PAGES.get(self.path.split("/")[2])
            if page is None:
                self.send_error(404)
                return
            files = [
                {"filename": n, "url": n, "hashes": {}, "upload-time": t, "yanked": y} for n, t, y in page
            ]
            body = json.dumps({"meta": {"api-version": "1.1"}, "files": files}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/vnd.pypi.simple.v1+json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Pages) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        sources = Sources(index=f"http://127.0.0.1:{server.server_port}/simple")
        with Web(sources) as web:
            yield Index(web, sources)
        server.shutdown()


def test_a_profile_s_newer_pins_with_the_date_that_they_need(index: Index) -> None:
    found = {one.name: one for one in changes.find(load("p40"), index, today="2026-12-01T00:00:00Z")}
    verl = found["verl"]
    assert isinstance(verl, Change)
    assert (verl.current, verl.proposed) == ("0.9.1", "0.10.0")
    assert [(edit.file, edit.after) for edit in verl.edits] == [
        ("profiles/_base.yaml", "0.10.0"),
        ("profiles/_base.yaml", "2026-11-04T00:00:00Z"),
    ]
    tensordict = found["tensordict"]
    assert isinstance(tensordict, Change)
    assert len(tensordict.edits) == 1  # old enough for the date as it is
    assert isinstance(found["torch"], Unknown)  # this index does not know it
    assert set(found) == {"verl", "tensordict", "torch", "exclude_newer", "base"}
    for change in (verl, tensordict):
        for edit in change.edits:
            lines = (root() / edit.file).read_text().splitlines()
            assert edit.before in lines[edit.line - 1]


def test_a_torch_that_is_held_by_hashes_is_left_to_people(index: Index) -> None:
    found = {one.name: one for one in changes.find(load("cpu"), index, today="2026-12-01T00:00:00Z")}
    torch = found["torch (linux)"]
    assert isinstance(torch, Unknown)
    assert "hashes" in torch.why


def test_actions_of_the_workflows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERLOCK_ROOT", str(tmp_path))
    folder = tmp_path / ".github" / "workflows"
    folder.mkdir(parents=True)
    line = f"      - uses: actions/checkout@{SHA} # v4.2.0\n"
    (folder / "a.yml").write_text(line + line)
    (folder / "b.yaml").write_text(f"      - uses: o/silent@{SHA} # v1.0.0\n")

    def tags(action: str) -> dict[str, str]:
        if action == "o/silent":
            raise LockError("it does not answer")
        return {"v4.2.0": SHA, "v4.3.0": "1" * 40}

    change, unknown = changes.actions(folder, tags)
    assert isinstance(change, Change)
    assert isinstance(unknown, Unknown)
    assert [(edit.file, edit.line) for edit in change.edits] == [
        (".github/workflows/a.yml", 1),
        (".github/workflows/a.yml", 2),
    ]
    text = (folder / "a.yml").read_text()
    for edit in change.edits:
        text = apply(text, edit)
    assert text == line.replace(SHA, "1" * 40).replace("v4.2.0", "v4.3.0") * 2
