"""A job's training, for real: a record, a checkpoint, a try that goes on; a node that differs is named."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

if importlib.util.find_spec("verl") is None:
    pytest.skip("verl comes with the lock", allow_module_level=True)

from harness.console import Output
from harness.data import tiny_model, tiny_task
from harness.errors import DataError, EnvironmentDiffersError, NodeLostError, OverrideError, TrainerError
from harness.evidence.model import load
from harness.evidence.output import Finished
from harness.evidence.record import RunRecord
from harness.fingerprint import guard
from harness.ladder import cause, compose, nodes
from harness.ladder import train as training
from harness.ladder.overrides import for_rung
from harness.ladder.train import Job, _error, _readable, _ties, train
from harness.profiles import load as profile_named
from harness.profiles.hydra import word

QUIET = Output(as_json=True)
EXPECTED = "sha256:" + "0" * 64


def job(runs: Path, *overrides: str, number: int = 1) -> Job:
    return Job(profile="cpu", nodes=number, expect=EXPECTED, runs=runs, overrides=overrides)


@pytest.fixture
def alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """A check that this environment, which is no image, can pass."""
    monkeypatch.setattr(nodes, "commands", lambda *_words: [["--version"]])


def words(tmp_path: Path, *, steps: int) -> list[str]:
    """Overrides of a small job, as a bundle would have them."""
    train_file, val_file = tiny_task.write(tmp_path / "data", rows=64, seed=1)
    model = str(tiny_model.write(tmp_path / "model", 1))
    site = Path(for_rung.__code__.co_filename).parents[1]
    settings: dict[str, object] = {
        key: value for key, value in profile_named("cpu").overrides().items() if "ray_init" not in key
    } | {
        "data.train_files": str(train_file),
        "data.val_files": str(val_file),
        "data.train_batch_size": 8,
        "data.max_prompt_length": 64,
        "data.max_response_length": 16,
        "actor_rollout_ref.model.path": model,
        "critic.model.path": model,
        "actor_rollout_ref.actor.ppo_mini_batch_size": 8,
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": 8,
        "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu": 8,
        "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu": 8,
        "critic.ppo_micro_batch_size_per_gpu": 8,
        "actor_rollout_ref.rollout.agent.agent_loop_config_path": str(site / "adapt" / "agent_loop.yaml"),
        "actor_rollout_ref.rollout.agent.default_agent_loop": "verlock_single_turn",
        "reward.custom_reward_function.path": str(site / "data" / "rewards.py"),
        "reward.custom_reward_function.name": "arithmetic",
        "trainer.default_local_dir": str(tmp_path / "checkpoints"),
        "trainer.save_freq": 1,
        "trainer.resume_mode": "auto",
        "trainer.total_training_steps": steps,
        "trainer.test_freq": -1,
    }
    return [word(key, value) for key, value in settings.items()]


@pytest.mark.usefixtures("alike")
def test_a_second_try_goes_on_from_the_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in profile_named("cpu").environment_variables().items():
        monkeypatch.setenv(name, value)
    from harness.adapt.settings import Settings

    for name, value in Settings().environment().items():
        monkeypatch.setenv(name, value)
    reported: list[Path] = []
    first = train(job(tmp_path / "runs", *words(tmp_path, steps=1)), QUIET, ["verlock"], reported.append)
    assert (first.status, first.rungs[-1].details["steps"]) == ("passed", [1])
    second = train(job(tmp_path / "runs", *words(tmp_path, steps=2)), QUIET, ["verlock"], reported.append)
    assert second.rungs[-1].details["resumed_from"] == 1
    assert second.rungs[-1].details["steps"] == [2]
    assert "on from the checkpoint of step 1" in str(second.rungs[-1].verified)
    assert "processes with the plug-in" in str(second.rungs[-1].verified)
    assert reported == [tmp_path / "runs" / run.id for run in (first, second)]
    assert load(reported[1]) == second


def test_a_word_that_verl_does_not_take_ends_before_a_record(tmp_path: Path) -> None:
    with pytest.raises(OverrideError, match=r"did you mean trainer\.nnodes"):
        train(job(tmp_path, "trainer.nnode=1"), QUIET, ["verlock"], print)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_only_its_owner_may_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As safetensors writes them; transformers would say that there is no such file."""
    given = words(tmp_path, steps=1)
    _readable(compose.compose_config(given))
    weights = tmp_path / "model" / "model.safetensors"
    # Root may read everything: what another user may is decided here by the file's mode.
    monkeypatch.setattr(os, "access", lambda path, _mode: bool(Path(path).stat().st_mode & 0o004))
    with pytest.raises(DataError, match="cannot read it") as caught:
        _readable(compose.compose_config(given))
    assert [problem.where for problem in caught.value.problems] == [str(weights)]


def test_several_nodes_need_a_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with pytest.raises(NodeLostError, match="for 2 nodes, and there is no cluster"):
        train(job(tmp_path, number=2), QUIET, ["verlock"], print)


def test_a_node_that_differs_ends_the_job_with_a_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes, "commands", lambda *_words: [["climb", "--to", "nowhere"]])
    with pytest.raises(EnvironmentDiffersError, match="not what was proven"):
        train(job(tmp_path), QUIET, ["verlock"], lambda _folder: None)
    run = load(tmp_path / "latest")
    assert (run.status, run.exit_code) == ("failed", EnvironmentDiffersError.exit_code)
    assert run.failure is not None
    assert (run.failure.failure_class, [rung.status for rung in run.rungs]) == ("environment", ["failed"])
    assert "nowhere" in run.failure.cause


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    import ray

    ray.init(num_cpus=1, include_dashboard=False, logging_level="warning")
    yield
    ray.shutdown()


@pytest.mark.usefixtures("cluster")
def test_each_node_of_a_real_cluster_is_checked_and_named() -> None:
    here = nodes.wait(1, print)
    assert len(here) == 1
    nodes.check(here, [["--version"]])
    with pytest.raises(EnvironmentDiffersError, match=f"node {here[0].name}") as caught:
        nodes.check(here, [["--version"], ["climb", "--to", "nowhere"]])
    assert "exit code 21" in str(caught.value)


@pytest.mark.usefixtures("cluster")
def test_a_node_that_does_not_come_is_said() -> None:
    told: list[str] = []
    with pytest.raises(NodeLostError, match="1 of 2 nodes came within 2 s"):
        nodes.wait(2, told.append, patience=2)
    assert told == ["1 of 2 nodes are there"]


@pytest.mark.usefixtures("cluster")
def test_a_lost_node_is_noticed_and_the_job_that_waits_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "_POLL_SECONDS", 0.05)
    monkeypatch.setattr(nodes, "_GRACE_SECONDS", 0.1)
    ended: list[bool] = []
    gone = nodes.Node(id="0" * 56, address="192.0.2.1", port=1, name="gone")
    with nodes.Watch([*nodes.alive(), gone], lambda: ended.append(True)) as watch:
        assert watch.lost() == [gone]
        watch._thread.join(5)
    assert ended == [True]
    with nodes.Watch(nodes.alive(), lambda: ended.append(True)) as watch:
        assert watch.lost() == []
    assert ended == [True]


@pytest.mark.usefixtures("cluster")
def test_a_killed_node_is_lost_before_ray_says_so() -> None:
    here = nodes.alive()[0]
    assert here.answers()
    with socket.socket() as unused:  # bound, and nobody listens
        unused.bind(("127.0.0.1", 0))
        silent = dataclasses.replace(here, address="127.0.0.1", port=unused.getsockname()[1])
        assert nodes.Watch([silent], print).lost() == [silent]


@pytest.mark.usefixtures("cluster")
def test_a_job_does_not_begin_on_a_node_that_ray_still_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a worker was killed and another has come: three nodes to Ray, of which one is gone."""
    here = nodes.alive()[0]
    gone = dataclasses.replace(here, id="0" * 56, port=1, name="killed")
    looks = iter([[gone], [gone, here], [here]])
    monkeypatch.setattr(nodes, "alive", lambda: next(looks))
    told: list[str] = []
    assert nodes.wait(1, told.append) == [here]
    assert [line.count("killed") for line in told] == [1, 1]
    monkeypatch.setattr(nodes, "alive", lambda: [gone, here])
    with pytest.raises(NodeLostError, match="killed"):
        nodes.wait(1, told.append, patience=1)
    with pytest.raises(NodeLostError, match="left before it was checked"):
        nodes.check([gone], [["--version"]])


@pytest.mark.parametrize(("lost", "kind"), [(True, NodeLostError), (False, TrainerError)])
def test_the_failure_says_what_to_do_next(tmp_path: Path, lost: bool, kind: type[TrainerError]) -> None:
    log = tmp_path / "output.log"
    log.write_text(
        "Traceback (most recent call last):\n"
        '  File "/x/verl/a.py", line 1, in f\n    g()\n'
        "RuntimeError: Connection closed by peer [10.0.0.3]:4242\n"
    )
    record = RunRecord.create(tmp_path / "runs", profile="cpu", command=[])
    told = cause.of_log(record, log, 0, ())
    there = [nodes.Node(id="1", address="10.0.0.3", port=1, name="worker")] if lost else []
    error = _error(1, log, told, there, 4)
    assert type(error) is kind
    assert error.failure_class == ("distributed" if lost else "backend")
    assert "checkpoint of step 4" in str(error)
    assert ("worker (10.0.0.3)" in str(error)) is lost
    assert "Connection closed by peer" in str(error)
    assert "no checkpoint was written" in str(_error(1, log, told, there, 0))


def test_the_module_that_nodes_run_is_in_every_image() -> None:
    """Ray pickles the check by name: a node without it says so, as any other difference."""
    assert nodes.run_here.__module__ == "harness.ladder.nodes"
    assert sys.modules[nodes.run_here.__module__] is nodes


def test_each_process_is_told_what_this_one_verified(tmp_path: Path) -> None:
    """The guard of the plug-in reads it in every Ray worker, on whichever node."""
    record = RunRecord.create(tmp_path, profile="cpu", command=[])
    ties = _ties("cpu", record)
    assert guard.check(ties) is not None
    assert ties["VERLOCK_RUN_ID"] == record.id
    assert set(record.run.fingerprint) >= {"environment", "parts", "contents"}
    told = json.loads(ties[guard.VARIABLE])
    told["parts"]["harness"] = "0" * 64
    with pytest.raises(EnvironmentDiffersError):
        guard.check(ties | {guard.VARIABLE: json.dumps(told)})


def test_what_only_a_worker_said_is_the_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alike: None
) -> None:
    """The driver's log names the wrapper; Ray's own folder, which goes with the job, holds the error."""
    said = (
        "Traceback (most recent call last):\n  File \"/x/judge.py\", line 7, in score\nKeyError: 'answer'\n"
    )

    def ended(command: list[str], *, log: Path, **_: object) -> Finished:
        (folder,) = (
            Path(w.partition("=")[2]) for w in command if w.startswith("+ray_kwargs.ray_init._temp_dir")
        )
        logs = folder / "session_2026" / "logs"
        logs.mkdir(parents=True)
        (logs / "worker-1.err").write_text(said)
        log.write_text(
            "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n"
        )
        return Finished(exit_code=1, seconds=1.0, timed_out=False)

    monkeypatch.setattr(training, "_ties", lambda *_words: {})
    monkeypatch.setattr(training.output, "run", ended)
    with pytest.raises(TrainerError, match="KeyError: 'answer'"):
        train(
            job(tmp_path / "runs", *words(tmp_path, steps=1)),
            QUIET,
            ["verlock", "train"],
            lambda _folder: None,
        )
    assert (tmp_path / "runs" / "latest" / "ray-logs" / "worker-1.err").read_text() == said
