"""``verlock diagnose`` as a user and a script call it, and signatures of the user's own."""

from __future__ import annotations

import gzip
import json
import random
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
from harness.errors import DiagnoseError, RungFailedError, VerlockError
from harness.evidence.model import Failure
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


WRONG: list[tuple[bytes | None, str]] = [
    (None, "cannot be read"),
    (b"", "empty"),
    (b"\n \n", "empty"),
    (random.Random(1).randbytes(20_000), "this is no text"),
    (gzip.compress(b"x" * 5000)[:30], "damaged"),
]


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


@pytest.mark.parametrize(
    "packed",
    [gzip.compress(GPUS.encode()), GPUS.encode("utf-16")],
    ids=["gzip", "utf-16"],
)
def test_a_packed_or_recoded_log_is_read(tmp_path: Path, packed: bytes) -> None:
    (tmp_path / "run.log").write_bytes(packed)
    assert diagnose([tmp_path / "run.log"], profile="cpu").signature == "gpus-none-on-host"


def test_a_log_from_a_pages_source_is_read(tmp_path: Path) -> None:
    page = "&gt; KeyError: &#39;prompt&#39; &amp; no more\n"
    (tmp_path / "run.log").write_text(page)
    assert diagnose([tmp_path / "run.log"]).raised.text == "KeyError: 'prompt' & no more"


def test_a_log_that_was_cut_inside_a_traceback_says_so(tmp_path: Path) -> None:
    log = "(T pid=1)  'truncation': 'error',\n" * 20 + (
        "Traceback (most recent call last):\n"
        '  File "/w/mine.py", line 3, in main\n    f()\n  File "/w/mine.py", line 9, in f\n    g()\n'
    )
    (tmp_path / "run.log").write_text(log)
    told = diagnose([tmp_path / "run.log"])
    assert (told.signature, told.file, told.line) == ("unknown", "/w/mine.py", 9)
    assert told.cause == "the log ends inside a traceback, at /w/mine.py:9, before its error"


def test_a_log_in_which_nothing_failed_has_no_cause(tmp_path: Path) -> None:
    quiet = "Warning: Failed to set NUMA affinity: no libnuma.so\n {'truncation': 'error',\n" + "step:1\n" * 9
    (tmp_path / "run.log").write_text(quiet)
    told = diagnose([tmp_path / "run.log"])
    assert (told.signature, told.cause) == ("unknown", "the log holds no error")


def failed(runs: Path, error: VerlockError | None, code: int | None, said: str) -> Path:
    record = RunRecord.create(runs, profile="cpu", command=["verlock", "climb"])
    (record.folder / "output.log").write_text(said)
    record.rung_started("reward")
    if error is not None:
        record.rung_failed("reward", Failure.of(error))
        record.finish("failed", error.exit_code)
    elif code is not None:
        record.finish("passed" if code == 0 else "interrupted", code)
    return record.folder


BAR = "Writing model shards: 100%|##########| 1/1\n"


def test_what_a_run_recorded_of_its_failure_stands_where_its_log_says_nothing(tmp_path: Path) -> None:
    error = RungFailedError("it returned None", where="/x/judge.py:4", todo="return a number")
    error.signature, error.failure_class = "reward-function", "model-logic"
    told = diagnose([failed(tmp_path, error, None, BAR)])
    assert (told.signature, told.failure_class, told.fix) == (
        "reward-function",
        "model-logic",
        "return a number",
    )
    assert (told.file, told.line, told.sure) == ("/x/judge.py", 4, "certain")
    # A true error in the log says more than the record, and what a user has learnt since counts.
    assert diagnose([failed(tmp_path, error, None, GPUS)]).signature == "gpus-none-on-host"


@pytest.mark.parametrize(
    ("code", "said"),
    [(0, "this run passed"), (130, "asked to end: Ctrl-C"), (None, "it was killed .SIGKILL")],
)
def test_a_run_in_which_nothing_failed_is_an_error_of_its_own(
    tmp_path: Path, code: int | None, said: str
) -> None:
    with pytest.raises(DiagnoseError, match=said):
        diagnose([failed(tmp_path, None, code, BAR)])


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
    ({"fix": "short", "class": "mine"}, "", r"(?s)--class: .*'config'.*--fix: .*at least"),
    ({}, "signatures: []\n", "cannot tell where"),
    ({}, "[]\n", "cannot tell where"),
    ({}, "signatures: {a: 1}\n", "cannot tell where"),
    ({}, "a: [1\n", "not YAML"),
    ({}, yaml.safe_dump({"signatures": [FIELDS]}), r"(?s)has a signature sandbox-gone already.*another name"),
]


@pytest.mark.parametrize(("change", "old", "said"), REFUSED)
def test_what_is_refused_changes_nothing(tmp_path: Path, change: dict[str, Any], old: str, said: str) -> None:
    path = tmp_path / THEIRS
    path.write_text(old) if old else None
    with pytest.raises(DiagnoseError, match=said):
        save({**FIELDS, **change}, OWN, tmp_path)
    assert (path.read_text() if path.exists() else "") == old
    assert [entry.name for entry in tmp_path.iterdir()] == ([THEIRS] if old else [])


def test_a_file_that_is_a_list_is_told_and_not_passed_over(log: Path, tmp_path: Path) -> None:
    (tmp_path / THEIRS).write_text("[]\n")
    with pytest.raises(DiagnoseError, match=THEIRS):
        diagnose([log], project=tmp_path)


def test_a_failure_that_the_file_knows_gets_no_second_name(log: Path, tmp_path: Path) -> None:
    save(FIELDS, OWN, tmp_path)
    told = diagnose([log], project=tmp_path).signature
    with pytest.raises(DiagnoseError, match="knows this failure already, as sandbox-gone"):
        save({**FIELDS, "id": "another-name"}, OWN, tmp_path, told=told)


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
