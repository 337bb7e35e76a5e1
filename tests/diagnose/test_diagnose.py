"""``verlock diagnose`` as a user and a script call it, and signatures of the user's own."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.diagnose.catalogue import THEIRS
from harness.diagnose.diagnose import diagnose
from harness.diagnose.save import pattern_of, save
from harness.errors import DiagnoseError
from harness.evidence.record import RunRecord

GPUS = "ValueError: Total available GPUs 0 is less than total desired GPUs 1\n"
OWN = "my_sandbox.errors.SandboxGone: no answer from 10.0.0.7:4000 after 31.5 s (request 8812)\n"
FIELDS = {
    "id": "sandbox-gone",
    "class": "environment",
    "scope": "local-only",
    "patterns": ["SandboxGone: no answer from"],
    "cause": "the code sandbox of our cluster is down",
    "fix": "restart it: systemctl restart sandbox",
    "evidence": ["seen in run.log"],
}


def verlock(*words: str | Path, cwd: Path) -> tuple[int, str, str]:
    command = [sys.executable, "-P", "-m", "harness", "diagnose", *map(str, words)]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "run.log"
    path.write_text(OWN)
    return path


def test_people_get_lines_and_scripts_one_document(tmp_path: Path) -> None:
    (tmp_path / "run.log").write_text(GPUS)
    code, out, err = verlock("run.log", "--profile", "cpu", cwd=tmp_path)
    assert (code, err) == (0, "")
    for said in (
        "class  distributed; local-only",
        "fix    give Ray a logical GPU",
        "gpus-none-on-host",
        "run.log:1",
    ):
        assert said in out
    code, out, err = verlock("run.log", "--profile", "cpu", "--json", cwd=tmp_path)
    document = json.loads(out)
    assert (document["class"], document["scope"], document["sure"]) == (
        "distributed",
        "local-only",
        "certain",
    )
    assert {"signature", "cause", "fix", "also", "raised", "file", "line", "schema_version"} <= set(document)


@pytest.mark.parametrize(
    ("profile", "signature", "sure"),
    [
        ("cpu", "gpus-none-on-host", "certain"),
        ("a100", "gpus-taken-in-ray", "certain"),
        (None, "gpus-none-on-host", "possible"),
    ],
)
def test_the_same_text_has_another_cause_on_another_host(
    tmp_path: Path, profile: str | None, signature: str, sure: str
) -> None:
    log = tmp_path / "run.log"
    log.write_text(GPUS)
    told = diagnose([log], profile=profile)
    assert (told.signature, told.sure) == (signature, sure)
    assert bool(told.rivals) is (profile is None)


WRONG: list[tuple[bytes | None, str]] = [(None, "cannot be read"), (b"", "empty"), (b"\n \n", "empty")]


STACK = """Traceback (most recent call last):
  File "/site-packages/verl/experimental/reward_loop/reward_manager/naive.py", line 71, in run_single
    result = self.compute_score(
  File "{file}", line 2, in compute_score
    return {what}
{error}
"""


@pytest.mark.parametrize(
    ("file", "signature"),
    [
        ("/site-packages/verl/workers/fsdp_workers.py", "micro-batch-unset"),
        ("/home/me/reward.py", "reward-function"),
    ],
)
def test_a_division_of_the_users_own_is_not_verls(tmp_path: Path, file: str, signature: str) -> None:
    error = "ZeroDivisionError: integer division or modulo by zero"
    (tmp_path / "run.log").write_text(STACK.format(file=file, what="1 // 0", error=error))
    _, out, _ = verlock("run.log", "--json", cwd=tmp_path)
    assert json.loads(out)["signature"] == signature


def test_a_module_that_verl_lost_is_no_package_to_install(tmp_path: Path) -> None:
    error = "ModuleNotFoundError: No module named 'verl.trainer.ppo.core_algos'"
    stack = STACK.format(file="/src/verl/trainer/ppo/ray_trainer.py", what="core_algos", error=error)
    (tmp_path / "run.log").write_text(stack)
    _, out, _ = verlock("run.log", "--json", cwd=tmp_path)
    assert json.loads(out)["signature"] != "package-missing"


@pytest.mark.parametrize(("content", "said"), WRONG)
def test_nothing_to_read_is_an_error_of_its_own(tmp_path: Path, content: bytes | None, said: str) -> None:
    if content is not None:
        (tmp_path / "run.log").write_bytes(content)
    code, out, _err = verlock("run.log", "--json", cwd=tmp_path)
    assert code == 32
    assert said in json.dumps(json.loads(out)["error"]["problems"])


def test_bytes_that_are_no_text_are_read(tmp_path: Path) -> None:
    (tmp_path / "run.log").write_bytes(bytes(range(256)) * 40 + b"\nRuntimeError: can't start new thread\n")
    assert diagnose([tmp_path / "run.log"]).signature == "process-limits"


def test_several_logs_are_one_failure(tmp_path: Path) -> None:
    (tmp_path / "driver.log").write_text("ray.exceptions.ActorDiedError: The actor died unexpectedly\n")
    (tmp_path / "worker.err").write_text(
        '(WorkerDict pid=7)   File "/w/verl/x.py", line 3, in f\n'
        "(WorkerDict pid=7) torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB\n"
    )
    told = diagnose([tmp_path / "driver.log", tmp_path / "worker.err"])
    assert (told.signature, Path(str(told.raised.log)).name) == ("gpu-memory", "worker.err")


def test_a_run_folder_is_read_with_its_facts(tmp_path: Path) -> None:
    """The host's facts are an event of the run; the workers' last words are in Ray's own logs."""
    record = RunRecord.create(tmp_path / "runs", profile="a100", command=["verlock", "climb"])
    (record.folder / "output.log").write_text(GPUS)
    assert diagnose([record.folder]).signature == "gpus-taken-in-ray"
    event = {"time": "2026-08-01T10:00:00Z", "pid": 1, "role": "climb", "kind": "host", "gpus": 0, "cpus": 2}
    (record.folder / "events.jsonl").write_text(json.dumps(event) + "\n")
    assert diagnose([record.folder]).signature == "gpus-none-on-host"
    logs = record.folder / "ray-logs"
    logs.mkdir()
    (record.folder / "output.log").write_text("ray.exceptions.ActorDiedError: The actor died unexpectedly\n")
    (logs / "worker-1.err").write_text("LLVM ERROR: Failed to compute parent layout for slice layout.\n")
    assert diagnose([record.folder]).signature == "triton-kernel-impossible"


def test_a_folder_without_a_log_is_told(tmp_path: Path) -> None:
    with pytest.raises(DiagnoseError, match=r"holds no output\.log"):
        diagnose([tmp_path])


def test_a_signature_of_the_users_own_is_kept_and_used(log: Path, tmp_path: Path) -> None:
    assert diagnose([log], project=tmp_path).signature == "unknown"
    words = ["--save-signature", "sandbox-gone", "--class", "environment", "--cause", FIELDS["cause"]]
    code, out, err = verlock("run.log", *words, cwd=tmp_path)
    assert code == 2, out + err
    assert "--fix" in out + err
    assert not (tmp_path / THEIRS).exists()
    code, out, err = verlock("run.log", *words, "--fix", FIELDS["fix"], cwd=tmp_path)
    assert code == 0, out + err
    inside = tmp_path / "experiments" / "today"
    inside.mkdir(parents=True)
    log.write_text(OWN.replace("10.0.0.7:4000", "10.9.1.2:5000").replace("31.5", "2.25").replace("8812", "9"))
    told = diagnose([log], project=inside)
    assert (told.signature, told.failure_class, told.fix) == ("sandbox-gone", "environment", FIELDS["fix"])


BELOW = """\
# mine
signatures:
  - &first
    id: other-one
    class: data
    scope: general
    patterns: [NoStock]
    cause: the shop is empty
    fix: buy something
    evidence: [we saw it]

# the end
"""
BETWEEN = """\
signatures:
- {id: other-one, class: data, scope: general, patterns: [NoStock],
   cause: the shop is empty, fix: buy something, evidence: [we saw it]}

fatal:
- we give up now"""
OLD_FILES = [BELOW, BETWEEN, "# nothing yet\nsignatures:\n", "# only a comment\n", ""]


@pytest.mark.parametrize("old", OLD_FILES)
def test_nothing_of_the_users_file_is_lost(tmp_path: Path, old: str) -> None:
    path = tmp_path / THEIRS
    path.write_text(old)
    save(FIELDS, OWN, tmp_path)
    new = path.read_text()
    rest = iter(new.splitlines())
    assert all(line in rest for line in old.splitlines()), "a line of the old file is gone or out of order"
    before = yaml.safe_load(old) or {}
    after = yaml.safe_load(new)
    assert [item["id"] for item in after["signatures"]][-1] == "sandbox-gone"
    assert after["signatures"][:-1] == (before.get("signatures") or [])
    assert after.get("fatal") == before.get("fatal")


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"class": "mine"}, "", "class"),
    ({"patterns": ["never said"]}, "", "does not match this failure"),
    ({"id": "gpu-memory"}, "", "verlock's own"),
    ({}, "signatures: []\n", "cannot tell where"),
    ({}, "signatures: {a: 1}\n", "cannot tell where"),
    ({}, "a: [1\n", "not YAML"),
    ({}, yaml.safe_dump({"signatures": [FIELDS]}), "twice"),
]


@pytest.mark.parametrize(("change", "old", "said"), REFUSED)
def test_what_is_refused_changes_nothing(tmp_path: Path, change: dict[str, Any], old: str, said: str) -> None:
    path = tmp_path / THEIRS
    path.write_text(old) if old else None
    with pytest.raises(DiagnoseError, match=said):
        save({**FIELDS, **change}, OWN, tmp_path)
    assert (path.read_text() if path.exists() else "") == old
    assert [entry.name for entry in tmp_path.iterdir()] == ([THEIRS] if old else [])


def test_two_at_once_are_both_kept(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: save({**FIELDS, "id": f"sandbox-{n}"}, OWN, tmp_path), range(16)))
    kept = yaml.safe_load((tmp_path / THEIRS).read_text())["signatures"]
    assert sorted(item["id"] for item in kept) == sorted(f"sandbox-{n}" for n in range(16))


def test_a_pattern_leaves_open_what_differs_from_run_to_run() -> None:
    pattern = pattern_of("IOError: /mnt/a/b.bin (0x7f00aa) at 12.5 s")
    assert "/mnt" not in pattern
    assert "7f00aa" not in pattern
    assert "12" not in pattern
