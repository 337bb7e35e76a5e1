"""The user's files in a command: found, laid inside under their own paths, or refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.build.image import given
from harness.build.image.run import Room, _places
from harness.errors import OverrideError


def test_an_override_s_files_go_along_and_its_other_words_do_not(tmp_path: Path) -> None:
    for name in ("a.parquet", "b.parquet"):
        (tmp_path / name).touch()
    overrides = [
        f"data.train_files=[{tmp_path}/a.parquet,'{tmp_path}/b.parquet']",
        "trainer.total_epochs=2",
        "data.val_files=/no/such/file",
        "trainer.project_name=a/b",
    ]
    assert given.override_paths(overrides) == ([tmp_path / "a.parquet", tmp_path / "b.parquet"], [])


def test_a_relative_path_in_an_override_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "a.parquet").touch()
    monkeypatch.chdir(tmp_path)
    found, problems = given.override_paths(["data.train_files=d/a.parquet"])
    assert found == []
    with pytest.raises(OverrideError, match=f"write it whole: {tmp_path}/d/a.parquet"):
        given.refuse(problems)


def test_what_links_lead_to_goes_along(tmp_path: Path) -> None:
    """As Hugging Face's cache keeps a model: a folder of links into another one."""
    blob, snapshot = tmp_path / "blobs" / "0a", tmp_path / "snapshots" / "1"
    for folder in (blob.parent, snapshot):
        folder.mkdir(parents=True)
    blob.write_text("weights")
    (snapshot / "model.safetensors").symlink_to("../../blobs/0a")
    (snapshot / "gone").symlink_to("../../blobs/none")
    assert set(given.needed([snapshot, snapshot / "model.safetensors"])) == {snapshot, blob}


@pytest.mark.parametrize("path", ["/", "/opt", "/tmp", "/proc/1", "/opt/verlock/share"])
def test_the_image_s_own_folders_are_not_laid_over(path: str) -> None:
    with pytest.raises(OverrideError, match="cannot be laid into the image"):
        given.refuse(given.problems([Path(path)], as_root=False))


def test_root_s_private_files_are_said_to_be_unreadable_inside(tmp_path: Path) -> None:
    private, public = tmp_path / "private", tmp_path / "public"
    for path, mode in ((private, 0o700), (public, 0o755)):
        path.mkdir(mode=mode)
        path.chmod(mode)
    assert [problem.where for problem in given.problems([private, public], as_root=True)] == [str(private)]
    assert list(given.problems([private, public], as_root=False)) == []


def test_inputs_are_read_only_and_a_home_of_root_is_open(tmp_path: Path) -> None:
    room = Room(runs="/root/x/runs", inputs=(Path("/data/m"),))
    places = _places(tmp_path, room)
    assert places["volumes"] == {
        "/data/m": {"bind": "/data/m", "mode": "ro"},
        str(tmp_path): {"bind": "/root/x/runs", "mode": "rw"},
    }
    assert places["tmpfs"]["/root"].startswith("rw,mode=755")
    assert "/root" not in _places(tmp_path, Room())["tmpfs"]
