"""The run record: complete as it happens, true after a kill, clear when it cannot be written."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.errors import DataError, RecordError
from harness.evidence.model import Failure, Resources, load
from harness.evidence.record import RunRecord

Python = Callable[..., list[str]]
OnSmallDisk = Callable[..., subprocess.CompletedProcess[str]]


def create(tmp_path: Path) -> RunRecord:
    return RunRecord.create(tmp_path / "runs", profile="cpu", command=["verlock", "climb"])


def test_a_run_that_passes(tmp_path: Path) -> None:
    record = create(tmp_path)
    record.update(versions={"torch": "2.13.0+cpu"}, settings={"seed": 1})
    record.rung_started("env")
    record.rung_passed("env", "214 distributions match", 1.5, {"distributions": 214})
    record.update(resources=Resources(peak_pss_bytes=7))
    record.finish("passed", 0)
    run = load(tmp_path / "runs" / "latest")
    assert (run.status, run.exit_code, run.failure, run.id) == ("passed", 0, None, record.id)
    assert run.ended is not None
    assert run.started < run.ended
    assert run.rungs[0].model_dump() == {
        "name": "env",
        "status": "passed",
        "seconds": 1.5,
        "verified": "214 distributions match",
        "details": {"distributions": 214},
    }
    assert sorted(path.name for path in record.folder.iterdir()) == ["run.json"]


def test_resources_are_taken_at_each_write(tmp_path: Path) -> None:
    record, peaks = create(tmp_path), iter([10, 20])
    record.watch(lambda: Resources(peak_pss_bytes=next(peaks)))
    record.rung_started("env")
    assert load(record.folder).resources.peak_pss_bytes == 10
    record.finish("passed", 0)
    assert load(record.folder).resources.peak_pss_bytes == 20


def test_the_file_has_the_fields_that_others_rely_on(tmp_path: Path) -> None:
    record = create(tmp_path)
    record.rung_started("ppo")
    record.rung_failed(
        "ppo", Failure(failure_class="backend", signature="s", cause="c", fix="f", scope="local-only")
    )
    record.finish("failed", 22)
    document = json.loads((record.folder / "run.json").read_text())
    fields = {
        "schema_version",
        "id",
        "profile",
        "command",
        "status",
        "exit_code",
        "started",
        "ended",
        "seconds",
    }
    parts = {"pid", "rungs", "fingerprint", "image", "versions", "failure", "resources", "settings"}
    more = {
        "device",
        "rehearsal",
        "unverified",
        "contract",
        "given",
        "findings",
        "lock",
        "ended_by",
        "replays",
    }
    assert fields | parts | more == set(document)
    assert (document["device"], document["rehearsal"], document["unverified"]) == ("cpu", False, [])
    assert document["rungs"][0]["status"] == "failed"
    assert document["failure"] == {
        "class": "backend", "signature": "s", "cause": "c", "fix": "f", "scope": "local-only", "also": None,
    }  # fmt: skip


def test_until_the_end_the_file_says_interrupted(tmp_path: Path) -> None:
    record = create(tmp_path)
    record.rung_started("env")
    run = load(record.folder)
    assert (run.status, run.exit_code, run.ended, run.rungs[0].status) == (
        "interrupted",
        None,
        None,
        "interrupted",
    )


def test_an_error_of_ours_becomes_a_failure() -> None:
    failure = Failure.of(
        DataError("no column 'prompt'", where="a.parquet", why="verl reads it", todo="convert it")
    )
    assert failure.failure_class == "data"
    assert failure.cause == "a.parquet: no column 'prompt' (verl reads it)"
    assert failure.fix == "convert it"


def test_latest_moves_to_the_newest(tmp_path: Path) -> None:
    first, second = create(tmp_path), create(tmp_path)
    assert str((tmp_path / "runs" / "latest").readlink()) == second.id
    assert first.id != second.id
    assert first.id < second.id or first.run.started == second.run.started


CLIMB = """
from pathlib import Path
from harness.evidence.record import RunRecord
record = RunRecord.create(Path(sys.argv[1]), profile="cpu", command=["climb"])
print(record.id, flush=True)
for number in range(10_000):
    record.rung_started(f"rung{number % 50}")
    details = {"values": list(range(number % 200))}
    record.rung_passed(f"rung{number % 50}", "x" * (number % 3000), details=details)
"""


def test_a_kill_at_any_moment_leaves_a_readable_record(python: Python, tmp_path: Path) -> None:
    draw = random.Random(2)
    for _ in range(12):
        with subprocess.Popen(python(CLIMB, tmp_path / "runs"), stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            name = child.stdout.readline().strip()
            time.sleep(draw.uniform(0.0, 0.15))
            child.send_signal(signal.SIGKILL)
        run = load(tmp_path / "runs" / name)
        assert (run.status, run.exit_code, run.ended) == ("interrupted", None, None)
        assert all(rung.status in {"passed", "interrupted"} for rung in run.rungs)


def test_a_file_where_the_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("in the way")
    with pytest.raises(RecordError, match="a file is where a folder is needed"):
        create(tmp_path)
    assert (tmp_path / "runs").read_text() == "in the way"


def test_a_folder_where_the_link_should_be(tmp_path: Path) -> None:
    (tmp_path / "runs" / "latest" / "x").mkdir(parents=True)
    with pytest.raises(RecordError, match="latest"):
        create(tmp_path)
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["latest"]


def test_a_read_only_file_system(on_small_disk: OnSmallDisk) -> None:
    done = on_small_disk("""
import subprocess
from harness.evidence.record import RunRecord
subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
try:
    RunRecord.create(disk / "runs", profile="cpu", command=[])
except Exception as error:
    print(type(error).__name__, error.exit_code, error)
""")
    assert done.stdout.startswith("RecordError 16"), done
    assert "read-only" in done.stdout


def test_a_full_disk_at_the_start_leaves_nothing(on_small_disk: OnSmallDisk) -> None:
    done = on_small_disk("""
from harness.evidence.record import RunRecord
(disk / "filler").write_bytes(bytes(450_000))
try:
    RunRecord.create(disk / "runs", profile="cpu", command=[])
except Exception as error:
    print(type(error).__name__, error.exit_code, sorted(path.name for path in disk.iterdir()))
""")
    assert done.stdout.strip() == "DiskFullError 17 ['filler']", done


def test_a_disk_that_fills_up_still_gets_its_end_recorded(on_small_disk: OnSmallDisk) -> None:
    done = on_small_disk("""
from harness.errors import DiskFullError
from harness.evidence.model import Failure, load
from harness.evidence.record import RunRecord
record = RunRecord.create(disk / "runs", profile="cpu", command=[])
record.rung_started("ppo")
with (disk / "filler").open("wb", buffering=0) as filler:
    try:
        while True:
            filler.write(bytes(4096))
    except OSError:
        pass
try:
    record.update(settings={"x": "y" * 9000})
except DiskFullError as error:
    run = load(record.folder)
    print(run.status, run.settings, sorted(path.name for path in record.folder.iterdir()))
    record.rung_failed("ppo", Failure.of(error))
record.finish("failed", 17)
run = load(record.folder)
print(run.status, run.exit_code, run.failure.failure_class, len(run.settings["x"]))
""")
    assert done.stdout.splitlines() == [
        "interrupted {} ['.reserve', 'run.json']",
        "failed 17 resource 9000",
    ], done


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ("[]", "schema version None"),
        ('{"schema_version": 2}', "schema version 2, this verlock reads 1"),
        ('{"schema_version": 1, "colour": "red"}', "colour: Extra inputs are not permitted"),
    ],
)
def test_a_record_that_is_not_ours(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(RecordError, match=message):
        load(tmp_path)


def test_no_record(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="cannot read the run record"):
        load(tmp_path / "nothing")
