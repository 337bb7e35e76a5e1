"""A replay is refused in another environment and with other files; what differs is named."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.errors import NotReproducedError
from harness.evidence import given, replay
from harness.evidence.model import Image, load
from harness.evidence.record import RunRecord
from harness.fingerprint import identity
from harness.profiles.load import load as load_profile

ROOT = Path(__file__).parents[2]


def recorded(runs: Path, *, command: tuple[str, ...] = ("climb",), **fields: Any) -> Path:
    record = RunRecord.create(runs, profile="cpu", command=["verlock", *command])
    record.update(**({"fingerprint": identity.fingerprint(load_profile("cpu"), None)} | fields))
    record.finish("passed", 0)
    return record.folder


def test_a_replay_of_a_replay_is_one_of_the_first(tmp_path: Path) -> None:
    first, second, third = (recorded(tmp_path) for _ in range(3))
    for folder, of in ((second, first), (third, second)):
        replay.mark(folder, of=load(of))
        assert load(folder).replays == first.name


@pytest.mark.parametrize("part", ["harness", "lock", "profile"])
def test_another_environment_is_named_by_its_part(tmp_path: Path, part: str) -> None:
    found = identity.fingerprint(load_profile("cpu"), None)
    run = load(recorded(tmp_path, fingerprint={**found, "parts": {**found["parts"], part: "0" * 64}}))
    (problem,) = replay.differences(run, None)
    assert problem.what == f"the {part} here is not that of the run"
    assert replay.differences(load(recorded(tmp_path)), None) == []


def test_files_that_were_changed_and_another_image_are_named(tmp_path: Path) -> None:
    file = tmp_path / "judge.py"
    file.write_text("1")
    run = load(recorded(tmp_path / "runs", given=given.of([file], {})))
    assert replay.differences(run, None) == []
    file.write_text("2")
    assert [(p.where, p.what) for p in replay.differences(run, None)] == [
        (str(file), "judge.py was changed since the run")
    ]
    inside = load(recorded(tmp_path / "runs", image=Image(manifest="sha256:a", config="sha256:b")))
    assert "the image here" in replay.differences(inside, "sha256:c")[0].what
    assert replay.differences(inside, "sha256:a") == []


def test_what_is_no_finished_climb_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotReproducedError, match="needs the cluster"):
        replay.words_of(load(recorded(tmp_path, command=("train", "x=1"))))
    cut = RunRecord.create(tmp_path, profile="cpu", command=["verlock", "climb"])
    with pytest.raises(NotReproducedError, match="interrupted"):
        replay.words_of(cut.run)


def verlock(*words: str | Path, cwd: Path, **variables: str) -> tuple[int, dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "harness", words[0], "--json", *map(str, words[1:])],
        env={**os.environ, "PYTHONPATH": str(ROOT), **variables},
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, json.loads(done.stdout)


def test_a_climb_is_run_again_from_anywhere_with_its_own_words(tmp_path: Path) -> None:
    """From another folder, with another value of a variable: the record's own count."""
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    home.mkdir()
    elsewhere.mkdir()
    (home / "judge.py").write_text(
        "def score(data_source, solution_str, ground_truth, extra_info=None):\n    return 0.5\n"
    )
    words = ("--from", "data", "--to", "data", "--seed", "7", "--reward", "judge.py:score", "--runs", "mine")
    code, first = verlock("climb", *words, cwd=home, TOKENIZERS_PARALLELISM="false")
    assert code == 0, first
    code, told = verlock("replay", home / first["run"], cwd=elsewhere, TOKENIZERS_PARALLELISM="true")
    assert code == 0, told
    assert told["reproduced"] is True
    assert told["compared"]["rungs"] == 1
    again = load(Path(told["replay"]))
    assert (again.settings["seed"], again.id != first["id"]) == (7, True)
    assert again.replays == first["id"]
    assert Path(told["replay"]).parent == home / "mine"
    assert again.given is not None
    assert again.given == load(home / first["run"]).given

    (home / "judge.py").write_text(
        "def score(data_source, solution_str, ground_truth, extra_info=None):\n    return 1\n"
    )
    code, told = verlock("replay", home / first["run"], cwd=elsewhere)
    assert code == 13
    assert str(home / "judge.py") in told["error"]["problems"][0]["where"]
