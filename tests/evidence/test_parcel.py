"""A bundle holds the record's text, the same bytes each time, and nothing that was planted in it."""

from __future__ import annotations

import gzip
import json
import os
import socket
import tarfile
from pathlib import Path

import pytest

from harness.errors import BundleError, RecordError
from harness.evidence import parcel
from harness.evidence.model import Given
from harness.evidence.record import RunRecord

TOKEN = "hf_" + "Zz9" * 10
ENVIRON = {"SOME_API_KEY": "plain-looking-words", "USER": "mallory"}
PLANTED = {
    "run.json": TOKEN,
    "output.log": f"login {TOKEN}\nplain-looking-words\nhttp://u:pw12345@mirror.example/\n/home/oscar/x.py",
    "events.jsonl": f'{{"kind": "x", "path": "{Path.home()}/secret-project/x.py", "by": "mallory"}}\n',
    "ray-logs/worker-1.err": f"connected from {socket.gethostname()} by oscar\n",
    "config.yaml": f"wandb_api_key: {'0a1b' * 10}\n",
}
GONE = [TOKEN, "plain-looking-words", "pw12345", "oscar", "mallory", "0a1b0a1b", str(Path.home()) + "/secret"]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A record with secrets in each kind of file, and files that are not text."""
    record = RunRecord.create(
        tmp_path / "runs", profile="cpu", command=["verlock", "climb", f"--model={TOKEN}"]
    )
    record.update(given=Given(folder=str(tmp_path)))
    record.finish("passed", 0)
    for name, text in PLANTED.items():
        path = record.folder / name
        path.parent.mkdir(exist_ok=True)
        if name != "run.json":
            path.write_text(text)
    (record.folder / "inputs").mkdir()
    for folder in ("samples", "ppo-mock/samples", "validation-samples"):
        (record.folder / folder).mkdir(parents=True)
        (record.folder / folder / "1.jsonl").write_text('{"input": "a row of the user"}\n')
    (record.folder / "inputs" / "train.parquet").write_bytes(b"PAR1" + TOKEN.encode())
    (record.folder / "tensorboard").mkdir()
    (record.folder / "tensorboard" / "events.out.tfevents.1.node-of-eve.77.0").write_bytes(TOKEN.encode())
    os.mkfifo(record.folder / "pipe.log")
    (record.folder / "outside.log").symlink_to("/etc/passwd")
    (record.folder / "report.html").write_text("made on node-of-eve")
    return record.folder


def content(archive: Path) -> dict[str, str]:
    with tarfile.open(archive) as opened:
        return {m.name: opened.extractfile(m).read().decode() for m in opened.getmembers()}  # type: ignore[union-attr]


def test_nothing_planted_is_in_it_and_the_list_says_what_was(run: Path, tmp_path: Path) -> None:
    contents = parcel.pack(run, tmp_path / "b.tar.gz", ENVIRON)
    files = content(tmp_path / "b.tar.gz")
    everything = "\n".join([*files, *files.values()])
    assert [word for word in [*GONE, "node-of-eve"] if word in everything] == []
    assert files[f"{run.name}/report.html"] == "made on &lt;host&gt;", "seen, and no tag"
    if len(socket.gethostname()) >= 3:
        assert socket.gethostname() not in files[f"{run.name}/ray-logs/worker-1.err"]
    assert contents.removed["output.log"]["secret"] >= 3
    assert contents.removed["run.json"]["secret"] == 1
    told = json.loads(files[f"{run.name}/{parcel.LIST}"])
    assert told == contents.model_dump(mode="json") == parcel.listed(tmp_path / "b.tar.gz")
    assert set(told["left_out"]) == {
        ".reserve",
        "inputs/train.parquet",
        "samples/1.jsonl",
        "ppo-mock/samples/1.jsonl",
        "validation-samples/1.jsonl",
        "outside.log",
        "pipe.log",
        "tensorboard/events.out.tfevents.1.<host>.77.0",
    } - ({".reserve"} if not (run / ".reserve").exists() else set())
    assert set(files) == {f"{run.name}/{name}" for name in [*told["files"], parcel.LIST]}


def test_the_same_record_gives_the_same_bytes(run: Path, tmp_path: Path) -> None:
    parcel.pack(run, tmp_path / "a.tar.gz", ENVIRON)
    for path in run.rglob("*"):
        if path.is_file() and not path.is_symlink():
            os.utime(path, (1, 1))
    parcel.pack(run, tmp_path / "b.tar.gz", ENVIRON)
    assert (tmp_path / "a.tar.gz").read_bytes() == (tmp_path / "b.tar.gz").read_bytes()
    assert gzip.decompress((tmp_path / "a.tar.gz").read_bytes())


def test_what_is_there_is_not_overwritten(run: Path, tmp_path: Path) -> None:
    target = tmp_path / "mine.tar.gz"
    target.write_text("mine")
    with pytest.raises(BundleError, match="there is a file already"):
        parcel.pack(run, target, ENVIRON)
    assert target.read_text() == "mine"


def test_a_hole_in_the_cleaning_writes_no_archive(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What stands for a path must not be something that has to go itself."""
    monkeypatch.setattr(parcel, "root", lambda: Path("/srv/verlock"))
    mine = parcel.own(run, parcel.load(run), ENVIRON)
    monkeypatch.setattr(
        parcel, "own", lambda *_a: type(mine)(**{**vars(mine), "folders": {"/x": "password=hunter2hunter2"}})
    )
    (run / "output.log").write_text("/x/y.py")
    with pytest.raises(BundleError, match="would still be in it"):
        parcel.pack(run, tmp_path / "b.tar.gz", ENVIRON)
    assert not (tmp_path / "b.tar.gz").exists()


def test_what_is_no_record_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordError):
        parcel.pack(tmp_path, tmp_path / "b.tar.gz", {})
