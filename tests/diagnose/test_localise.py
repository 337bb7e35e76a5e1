"""The boundary at fault, with as few runs as a binary search needs, and never another failure's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import pytest

from harness.diagnose import boundaries
from harness.diagnose import localise as room
from harness.diagnose.boundaries import of_run
from harness.diagnose.localise import Localiser, asked, same
from harness.diagnose.search import search
from harness.errors import DiagnoseError, EnvironmentDiffersError
from harness.evidence.given import digest
from harness.evidence.model import Failure, Given, load
from harness.evidence.record import RunRecord

NAMES = [f"b{number}" for number in range(10)]


@pytest.mark.parametrize("count", range(1, 11))
def test_each_boundary_is_found_in_few_runs(count: int) -> None:
    """Exhaustive: each number of boundaries, each of them at fault."""
    names = NAMES[:count]
    for culprit in names:
        asked: list[frozenset[str]] = []

        def fails(real: frozenset[str], culprit: str = culprit, asked: list[frozenset[str]] = asked) -> bool:
            asked.append(real)
            return culprit in real

        found = search(names, fails)
        assert found.boundary == culprit
        assert found.passing is not None
        assert found.failing - found.passing == {culprit}, "the two runs differ in it alone"
        assert len(asked) == found.runs == len(set(asked)), "no run is made twice"
        assert found.runs <= math.ceil(math.log2(count)) + 1


@pytest.mark.parametrize("pair", [(a, b) for a, b in product(range(6), repeat=2) if a < b])
def test_of_two_that_fail_together_the_one_that_completes_is_named(pair: tuple[int, int]) -> None:
    names = NAMES[:6]
    wanted = {names[number] for number in pair}
    found = search(names, lambda real: wanted <= real)
    assert found.boundary == names[pair[1]]


@pytest.mark.parametrize("count", [0, 1, 5])
def test_a_failure_with_everything_minimal_has_no_boundary(count: int) -> None:
    found = search(NAMES[:count], lambda real: True)
    assert (found.boundary, found.failing) == (None, frozenset())


WORDS = [
    "actor_rollout_ref.rollout.dtype=bfloat16",
    "+actor_rollout_ref.model.override_config.attn_implementation=eager",
    "trainer.nnodes=1",
    "data.shuffle=True",
]
FAILURE = Failure(failure_class="data", signature="chat-template", cause="the template refuses row 3")
OTHER = Failure(failure_class="resource", signature="disk-full", cause="no space")


def recorded(runs: Path, failure: Failure | None, rung: str = "ppo", **settings: object) -> Path:
    record = RunRecord.create(runs, profile="cpu", command=["verlock", "climb"])
    record.update(settings=settings)
    if failure is None:
        record.rung_passed(rung, "fine")
    else:
        record.rung_failed(rung, failure)
    record.finish("passed" if failure is None else "failed", 0 if failure is None else 20)
    return record.folder


FULL = {
    "rollout": "hf",
    "reward": "rule",
    "model": "/models/smol",
    "data": "/data/rows.parquet",
    "overrides": WORDS,
    "first": "ppo",
    "last": "ppo",
}


class Simulated:
    """Climbs that fail where a boundary's words are there, and leave a record as a climb does."""

    def __init__(self, *signs: str, then: Failure = FAILURE) -> None:
        self.signs = signs
        self.then = then
        self.asked: list[list[str]] = []

    def __call__(self, words: Sequence[str], runs: Path) -> Path:
        self.asked.append(list(words))
        said = " ".join(words)
        return recorded(runs, self.then if all(sign in said for sign in self.signs) else None)


CULPRITS = {
    "ray": "--to ppo",
    "rollout": "--rollout hf",
    "reward": "--reward rule",
    "model": "--model /models/smol",
    "data": "--data /data/rows.parquet",
    "dtype": WORDS[0],
    "attention": WORDS[1],
    "config trainer.nnodes": WORDS[2],
    "config data.shuffle": WORDS[3],
}


@pytest.mark.parametrize("boundary", CULPRITS)
def test_the_boundary_is_named_with_two_records(tmp_path: Path, boundary: str) -> None:
    simulated = Simulated(CULPRITS[boundary])
    folder = recorded(tmp_path, FAILURE, **FULL)
    located = Localiser(failing=folder, runs=tmp_path, tell=lambda _line: None, run_climb=simulated).locate()
    assert located.boundary == boundary
    assert set(located.of) == set(CULPRITS)
    assert located.passing is not None
    assert load(located.failing).failure == FAILURE
    assert load(located.passing).failure is None
    assert len(located.made) == len(simulated.asked) <= math.log2(len(located.of)) + 2


def test_another_failure_on_the_way_is_not_the_one(tmp_path: Path) -> None:
    """Toggling can break something else; that run says nothing of the boundary."""
    simulated = Simulated("--to", then=OTHER)
    folder = recorded(tmp_path, FAILURE, **FULL)
    located = Localiser(failing=folder, runs=tmp_path, tell=lambda _line: None, run_climb=simulated).locate()
    assert located.boundary == "config data.shuffle", "the last: only the given run has the failure"


def test_what_cannot_be_located_is_told(tmp_path: Path) -> None:
    quiet = {"tell": lambda _line: None, "run_climb": Simulated("never"), "runs": tmp_path}
    with pytest.raises(DiagnoseError, match="no rung of"):
        Localiser(failing=recorded(tmp_path, None, **FULL), **quiet).locate()
    bare = recorded(tmp_path, FAILURE, rung="data", rollout="mock", reward="mock")
    with pytest.raises(DiagnoseError, match="nothing of this run can be toggled"):
        Localiser(failing=bare, **quiet).locate()


def test_a_rung_below_ray_is_climbed_without_it(tmp_path: Path) -> None:
    run = load(recorded(tmp_path, FAILURE, rung="reward", **FULL | {"first": "forward"}))
    real = of_run(run)
    assert "ray" not in [boundary.name for boundary in real]
    assert boundaries.words(run, real, frozenset())[:4] == ["--from", "forward", "--to", "reward"]


@pytest.mark.parametrize(("rung", "added"), [("checkpoint", "checkpoint"), ("ppo-2ranks", "ranks")])
def test_what_a_rung_adds_to_the_trainer_is_a_boundary(tmp_path: Path, rung: str, added: str) -> None:
    """The failure comes with the rung alone, and goes in the ppo rung, which has all the rest."""
    simulated = Simulated(f"--to {rung}")
    folder = recorded(tmp_path, FAILURE, rung=rung, **FULL | {"first": rung})
    located = Localiser(failing=folder, runs=tmp_path, tell=lambda _line: None, run_climb=simulated).locate()
    assert located.boundary == added
    assert located.of[:2] == ("ray", added)
    passed = next(" ".join(said) for said in simulated.asked if "--to ppo " in " ".join(said))
    assert "--from ppo --to ppo" in passed


def test_a_run_whose_file_was_edited_since_is_no_end_of_a_search(tmp_path: Path) -> None:
    """It fails no more; what passes beside it would be named as the boundary."""
    mine = tmp_path / "judge.py"
    mine.write_text("1")
    folder = recorded(tmp_path / "runs", FAILURE, **FULL)
    run = load(folder)
    made = run.model_copy(update={"given": Given(folder=str(tmp_path), files={str(mine): digest(mine)})})
    (folder / "run.json").write_text(made.model_dump_json(by_alias=True))
    search = Localiser(
        failing=folder, runs=tmp_path / "runs", tell=lambda _line: None, run_climb=Simulated("hf")
    )
    assert search.locate().boundary == "rollout"
    mine.write_text("2")
    with pytest.raises(EnvironmentDiffersError, match=r"judge\.py was changed since the run"):
        search.locate()


def test_all_real_are_the_failing_runs_own_words(tmp_path: Path) -> None:
    kept = {"seed": 3, "use_v1": False, "checkpoint": "mock", "silence": 90.0, "rehearsal": True}
    run = load(recorded(tmp_path, FAILURE, **FULL | kept | {"contract": "enforce"}))
    real = of_run(run)
    said = boundaries.words(run, real, frozenset(boundary.name for boundary in real))
    assert said[said.index("--") + 1 :] == WORDS
    for option in ("--rollout hf", "--seed 3", "--trainer v0", "--model /models/smol", "--from ppo --to ppo"):
        assert option in " ".join(said)
    for option in ("--checkpoint mock", "--silence 90.0", "--rehearse", "--enforce"):
        assert option in " ".join(said)


SAMES: list[tuple[Failure, Failure | None, bool]] = [
    (FAILURE, None, False),
    (FAILURE, OTHER, False),
    (FAILURE, FAILURE.model_copy(update={"cause": "the template refuses row 9"}), True),
]


@pytest.mark.parametrize(("wanted", "seen", "expected"), SAMES)
def test_the_same_failure_is_known_again(wanted: Failure, seen: Failure | None, expected: bool) -> None:
    assert same(wanted, seen) is expected


def test_two_unknown_failures_are_told_apart_by_their_words() -> None:
    one = Failure(failure_class="backend", signature="unknown", cause="ValueError: a at step 3")
    assert same(one, one.model_copy(update={"cause": "ValueError: a at step 4"}))
    measured = [
        one.model_copy(update={"cause": f"step 3: actor/entropy is {value}, not {value}"})
        for value in ("5.4", "-0.001", "1e-05", "nan", "-inf")
    ]
    assert all(same(measured[0], other) for other in measured)
    assert not same(one, one.model_copy(update={"cause": "KeyError: b"}))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nonsense"], "nonsense is neither a run folder nor words of a climb"),
        (["runs/absent", "--from", "ppo"], "runs/absent is neither"),
        ([".", "--from", "reward"], "a run folder and --from reward"),
    ],
)
def test_what_is_neither_a_run_nor_a_climb_is_told_at_once(words: list[str], said: str) -> None:
    with pytest.raises(DiagnoseError, match=said) as told:
        asked(words)
    assert told.value.problems[0].todo


@pytest.mark.parametrize("words", [["--from", "ppo"], ["trainer.nnodes=2"], ["~data.seed"]])
def test_words_of_a_climb_are_a_climb(words: list[str], tmp_path: Path) -> None:
    assert asked(words) is None
    assert asked([str(tmp_path)]) == tmp_path


def test_a_climb_that_does_not_start_is_told_in_its_own_sentences(tmp_path: Path) -> None:
    """Both mistakes, each with its remedy; no JSON among them."""
    with pytest.raises(DiagnoseError) as told:
        room.climb(["--from", "nowhere", "--rollout", "none"], tmp_path)
    assert [problem.what for problem in told.value.problems] == [
        "the climb did not start: --from nowhere is unknown",
        "the climb did not start: --rollout none is unknown",
    ]
    assert all(problem.todo for problem in told.value.problems)
    assert "{" not in str(told.value)
