"""`verlock reward try`: verl's own managers call the function, and each planted fault is named."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

if importlib.util.find_spec("verl") is None:
    pytest.skip("verl comes with the lock", allow_module_level=True)

from harness.data import tiny_task, tiny_tokenizer
from harness.data.finding import Finding
from harness.errors import OverrideError
from harness.ladder.reward_calls import Call, distribution, evaluate
from harness.ladder.reward_child import settings, single
from harness.ladder.reward_load import Asked, load
from harness.ladder.reward_source import PASSED, judge, read
from harness.ladder.reward_try import Trial, _Lines, run

ODD = Path(__file__).parents[1] / "faults" / "odd_rewards.py"
OURS = Path(__file__).parents[2] / "harness" / "data" / "rewards.py"


def trial(reward: str, tmp_path: Path, **changed: object) -> Trial:
    train, _ = tiny_task.write(tmp_path, rows=4, seed=1)
    given = {"reward": reward, "data": train, "rows": 1, "manager": "naive", "model": "tiny", "seconds": 2.0}
    return Trial(**(given | changed))  # type: ignore[arg-type]


def test_every_planted_fault_is_found_with_verls_own_naive_manager(tmp_path: Path) -> None:
    said: list[str] = []
    calls = run(trial(f"{ODD}:odd", tmp_path), said.append).calls
    found = {finding.id: finding for finding in evaluate(calls, reward="odd", manager="naive")}
    assert set(found) == {
        "reward-ends",
        "reward-raises",
        "reward-type",
        "reward-random",
        "reward-keys",
        "reward-upside-down",
    }
    assert "ValueError" in found["reward-raises"].what
    assert f"{ODD}:16" in found["reward-raises"].what
    ends = {call.kind: call.ended for call in calls if call.ended}
    assert ends == {"adversarial: long run": "did not end within 2 s"}
    assert sum("going on after it" in line for line in said) == 1
    assert len(calls) == 11, "the responses after the one that hung were tried too"
    assert said[-1] == "9 of 11 responses to 1 rows were scored, each twice"
    assert "responses" not in said[0], "none was scored before"


def test_a_process_that_ends_in_a_call_is_told_from_one_that_hangs() -> None:
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb", buffering=0) as pipe:
        lines = _Lines(pipe)
        os.write(writer, b'{"begin": 0}\n{"en')
        assert lines.next(5.0) == {"begin": 0}
        assert lines.next(0.01) == "did not end within 0.01 s"
        os.close(writer)
        assert lines.next(5.0) == "ended its process"


def test_a_good_function_with_the_batch_manager_which_the_trainer_no_longer_knows(tmp_path: Path) -> None:
    calls = run(trial(f"{ODD}:batch", tmp_path, manager="batch"), lambda text: None).calls
    spread = distribution(calls)
    assert (spread["truth"]["min"], spread["empty"]["max"]) == (1.0, 0.0)
    found = evaluate(calls, reward="batch", manager="batch")
    assert [(f.id, f.level) for f in found] == [("reward-manager-gone", "warning")]


# A file, its function, the finding's id, what it says, and what is to be done.
FILE = """import os
import sys
LIMIT = 3
nan = lambda **passed: 1.0
def compute_score(data_source, solution_str, ground_truth, extra_info=None): return 1.0
def narrow(solution_str, ground_truth): return 1.0
def greedy(data_source, solution_str, ground_truth, extra_info, judge): return 1.0
"""
REFUSED = [
    pytest.param(
        "import nothere.deep\n" + FILE,
        "compute_score",
        "reward-load",
        "ModuleNotFoundError: No module named 'nothere' ({file}:1)",
        "one file",
        id="module",
    ),
    pytest.param(
        FILE + "sys.exit(3)\n",
        "narrow",
        "reward-load",
        "SystemExit: 3 ({file}:8)",
        "__main__",
        id="exit",
    ),
    pytest.param(
        FILE + "int('x')\n",
        "compute_score",
        "reward-load",
        "ValueError: invalid literal for int() with base 10: 'x' ({file}:8)",
        "python FILE",
        id="raises",
    ),
    pytest.param(
        FILE,
        "compute",
        "reward-missing",
        "no function compute",
        "mean compute_score?",
        id="missing",
    ),
    pytest.param(
        FILE,
        "LIMIT",
        "reward-no-function",
        "LIMIT in {file} is of type int",
        "it defines: co",
        id="value",
    ),
    pytest.param(FILE, "os", "reward-no-function", "is of type module", "it defines: co", id="module name"),
    pytest.param(
        FILE,
        "narrow",
        "reward-signature",
        "it does not take data_source, extra_info",
        "add them, or **kwargs",
        id="narrow",
    ),
    pytest.param(
        FILE, "greedy", "reward-signature", "it wants judge", "give a default to judge", id="greedy"
    ),
]


def refused(file: Path, function: str) -> Finding | None:
    """What verl's own loader makes of it, in this process."""
    asked = Asked(file=str(file), function=function, given=f"{file}:{function}", passed=PASSED)
    config = settings(str(file), function, "naive")
    return load(asked, lambda: single(config, tiny_tokenizer.make()))[1]


@pytest.mark.parametrize(
    ("manager", "returned", "said"),
    [
        ("batch", "[1.0]", "1 scores for 2 responses"),
        ("naive", "[1.0]", "it returns [1.0]"),
    ],
)
def test_a_list_is_no_score_and_one_score_is_none_for_two(
    tmp_path: Path, manager: str, returned: str, said: str
) -> None:
    """verl makes one tensor of a batch's scores: a list in it gives the tensor another shape."""
    (tmp_path / "mine.py").write_text(f"def score(**row): return {returned}\n")
    reward = f"{tmp_path}/mine.py:score"
    calls = run(trial(reward, tmp_path, manager=manager), lambda text: None).calls
    assert said in " ".join(f.what for f in evaluate(calls, reward=reward, manager=manager))


@pytest.mark.parametrize(("text", "function", "kind", "what", "todo"), REFUSED)
def test_what_cannot_be_called_is_one_finding_with_the_true_cause(
    tmp_path: Path, text: str, function: str, kind: str, what: str, todo: str
) -> None:
    file = tmp_path / "mine.py"
    file.write_text(text)
    finding = refused(file, function)
    assert finding is not None
    assert (finding.id, finding.level) == (kind, "fault")
    assert what.format(file=file) in finding.what
    assert todo in str(finding.todo)


@pytest.mark.parametrize(
    ("last", "what"), [("os._exit(0)", "ended its process"), ("import nothere", "'nothere' ({file}:8)")]
)
def test_a_file_that_cannot_be_loaded_is_not_called(tmp_path: Path, last: str, what: str) -> None:
    file = tmp_path / "mine.py"
    file.write_text(FILE + last)
    said: list[str] = []
    tried = run(trial(f"{file}:compute_score", tmp_path), said.append)
    assert tried.finding is not None
    assert (tried.calls, tried.finding.id) == ((), "reward-load")
    assert what.format(file=file) in tried.finding.what
    assert said == [f"loading {file}:compute_score into verl's naive manager"]


def test_only_the_files_own_functions_are_listed(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(FILE)
    finding = next(judge(read(file, "zzz", given="mine.py"), path_key="path", name_key="name"))
    assert (finding.id, finding.key) == ("reward-missing", "name")
    assert finding.why == "it defines: compute_score, greedy, nan, narrow"


@pytest.mark.parametrize("function", ["narrow", "greedy", "LIMIT"])
def test_preflight_says_the_same_of_the_file_without_running_it(tmp_path: Path, function: str) -> None:
    file = tmp_path / "mine.py"
    file.write_text(FILE)
    loaded = refused(file, function)
    (finding,) = judge(read(file, function, given=str(file)), path_key="path", name_key="name")
    assert loaded is not None
    assert (finding.id, finding.why, finding.todo) == (loaded.id, loaded.why, loaded.todo)


@pytest.mark.parametrize("function", ["nan", "compute_score"])
def test_a_good_function_is_loaded_also_under_a_name_that_is_a_number_to_hydra(
    tmp_path: Path, function: str
) -> None:
    file = tmp_path / "mine.py"
    file.write_text(FILE)
    assert refused(file, function) is None


@pytest.mark.parametrize("ending", ["", ":"])
def test_a_path_without_a_function_is_answered_with_those_of_the_file(tmp_path: Path, ending: str) -> None:
    (tmp_path / "mine.py").write_text(FILE)
    with pytest.raises(OverrideError, match="it defines: compute_score, greedy, nan, narrow"):
        run(trial(f"{tmp_path}/mine.py{ending}", tmp_path), lambda text: None)


NO_PYTHON = [("def f(:\n", "mine.py:1: the reward file is not Python"), ("x\0", "not Python")]


@pytest.mark.parametrize(("text", "said"), NO_PYTHON)
def test_a_file_that_is_not_python(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "mine.py").write_text(text)
    with pytest.raises(OverrideError, match=said):
        run(trial(f"{tmp_path}/mine.py:f", tmp_path), lambda text: None)


@pytest.mark.parametrize("name", ["no name", "1", "a-b"])
def test_what_can_be_no_functions_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(OverrideError, match="no function's name"):
        run(trial(f"{OURS}:{name}", tmp_path), lambda text: None)


def test_a_function_that_always_hangs_is_given_up_and_the_report_says_so(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("import time\ndef slow(**passed): time.sleep(60)\n")
    said: list[str] = []
    calls = run(trial(f"{file}:slow", tmp_path, seconds=0.5), said.append).calls
    assert [call.ended for call in calls] == ["did not end within 0.5 s"] * 3
    assert "going on" in said[1]
    assert said[3:] == [
        "response 3 of 11: did not end within 0.5 s; the others are not tried",
        "0 of 11 responses to 1 rows were scored, each twice",
    ]


def test_a_dict_without_score_has_a_finding_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("def f(**passed):\n    return {'acc': 1.0}\n")
    calls = run(trial(f"{file}:f", tmp_path), lambda text: None).calls
    (finding,) = evaluate(calls, reward="f", manager="naive")
    assert finding.id == "reward-no-score"
    assert finding.todo == "return a float, or a dict with it under 'score'"


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(OverrideError, match="no such file"):
        run(trial("gone.py:f", tmp_path), lambda text: None)


def scored(kind: str, *scores: float, shown: tuple[str, ...] = (), **more: object) -> Call:
    shown = shown or tuple(map(repr, scores))
    return Call(kind=kind, row=0, response="x", scores=scores, shown=shown, keys=("acc",), **more)  # type: ignore[arg-type]


# The calls, and the ids of what is found in them.
JUDGED = [
    ([scored("truth", 1.0, 1.0), scored("empty", 0.0, 0.0)], []),
    ([scored("truth", 1.0, 1.0), scored("empty", 1.0, 1.0)], ["reward-flat"]),
    ([scored("truth", 0.0, 0.0), scored("empty", 1.0, 1.0)], ["reward-upside-down"]),
    ([scored("truth", 1.0, 1.0), scored("empty", 0.5, 0.25)], ["reward-random"]),
    ([scored("truth", 1.0, 1.0), scored("empty", float("nan"), float("nan"))], ["reward-type"]),
    ([scored("truth", 1.0, 1.0), scored("empty", 0.0, 0.0, seconds=2.0)], ["reward-slow"]),
]


@pytest.mark.parametrize(("calls", "ids"), JUDGED)
def test_what_calls_mean(calls: list[Call], ids: list[str]) -> None:
    assert [finding.id for finding in evaluate(calls, reward="f", manager="naive")] == ids
