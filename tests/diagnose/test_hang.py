"""Pending is told from stuck, and stuck says where; the text of both stack writers is read."""

from __future__ import annotations

import pytest

from harness.diagnose.hang import Demand, RayState, evaluate
from harness.evidence.stacks import Stack

IDLE = """\
Thread 0x00007f (most recent call first):
  File "/e/lib/python3.11/threading.py", line 320 in wait
  File "/e/lib/python3.11/site-packages/ray/_private/worker.py", line 900 in main_loop
  File "/e/lib/python3.11/site-packages/ray/_private/workers/default_worker.py", line 300 in <module>
"""
IN_REWARD = """\
Thread 0x00007e (most recent call first):
  File "/e/lib/python3.11/socket.py", line 706 in readinto
  File "/home/u/judge.py", line 31 in ask
  File "/home/u/judge.py", line 12 in compute_score
  File "/e/lib/python3.11/site-packages/verl/reward_manager/naive.py", line 80 in run_single
"""
BY_PY_SPY = """\
Process 7: ray::RewardLoopWorker
Thread 7 (idle): "MainThread"
    readinto (socket.py:706)
    ask (/home/u/judge.py:31)
    compute_score (/home/u/judge.py:12)
    run_single (/e/lib/python3.11/site-packages/verl/experimental/reward_loop/reward_manager/naive.py:80)
"""
IN_VERL = """\
Thread 0x00007d (most recent call first):
  File "/e/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", line 4000 in barrier
  File "/e/lib/python3.11/site-packages/verl/workers/engine_workers.py", line 44 in update_actor
"""
IMPORTING = """\
Thread 0x00007c (most recent call first):
  File "<frozen importlib._bootstrap>", line 1147 in _find_and_load_unlocked
"""


def stack(text: str, title: str = "ray::RewardLoopWorker") -> Stack:
    return Stack(pid=7, title=title, told_by="faulthandler", text=text)


def ray(*demands: Demand, cpus: float = 2.0, used: float = 2.0) -> RayState:
    return RayState(total={"CPU": cpus, "GPU": 1.0}, used={"CPU": used, "GPU": 0.0}, demands=demands)


CPU = Demand(kind="actor or task", bundle={"CPU": 1.0}, count=7)
GPUS = Demand(kind="placement group", bundle={"CPU": 1.0, "GPU": 1.0}, count=2)
FREE = Demand(kind="actor or task", bundle={"CPU": 1.0}, count=1)


@pytest.mark.parametrize("text", [IDLE + "\n" + IN_REWARD, BY_PY_SPY])
def test_stuck_names_the_users_own_line(text: str) -> None:
    found = evaluate([stack(IDLE, "ray::WorkerDict"), stack(text)], ray())
    assert (found.signature, found.where) == ("hang", "/home/u/judge.py:31")
    assert "stuck in ask, called in ray::RewardLoopWorker (pid 7)" in found.what
    assert (found.failure_class, found.also) == ("model-logic", "distributed")


def test_stuck_in_verl_is_named_where_nothing_of_the_users_is() -> None:
    found = evaluate([stack(IDLE), stack(IN_VERL, "ray::WorkerDict")], ray())
    assert found.where == "/e/lib/python3.11/site-packages/verl/workers/engine_workers.py:44"
    assert "update_actor" in found.what


def test_a_trainer_that_waits_for_samples_is_sent_to_the_reward() -> None:
    """``sys.exit`` in a reward function: seen with verl 0.9.1, no process and no log says a word of it."""
    waits = IN_VERL.replace("update_actor", "_wait_for_next_poll")
    assert "--to reward" in evaluate([stack(waits, "ray::TaskRunnerV1")], ray()).todo
    assert "--to reward" not in evaluate([stack(IN_VERL, "ray::TaskRunnerV1")], ray()).todo


@pytest.mark.parametrize(("demand", "said"), [(CPU, "7 x {CPU: 1}"), (GPUS, "2 x {CPU: 1, GPU: 1}")])
def test_pending_is_told_from_stuck(demand: Demand, said: str) -> None:
    """A worker that waits for an actor that cannot start looks stuck in its own code."""
    found = evaluate([stack(IN_REWARD)], ray(demand))
    assert found.signature == "ray-cannot-schedule"
    assert "pending for want of resources" in found.what
    assert said in found.what
    assert "2 CPU (2 used)" in found.why


def test_a_demand_that_can_be_met_is_no_reason() -> None:
    assert evaluate([stack(IN_REWARD)], ray(FREE, used=1.0)).signature == "hang"


def test_verls_transfer_queue_is_known_by_its_stack() -> None:
    text = 'Thread 0x1 (most recent call first):\n  File "/e/transfer_queue/x.py", line 1 in init\n'
    assert evaluate([stack(text)], ray(CPU)).signature == "transfer-queue-waits-for-cpus"


def test_a_slow_start_is_no_hang_of_verl() -> None:
    assert "still being imported" in evaluate([stack(IMPORTING)], None).what


def test_no_stack_at_all_is_said() -> None:
    assert "no process shows where" in evaluate([stack("no Python stack")], None).what


STARTING_STORAGE = """\
Thread 10078 (idle): "MainThread"
    get (/e/lib/python3.11/site-packages/ray/_private/worker.py:2980)
    process_zmq_server_info (/e/lib/python3.11/site-packages/transfer_queue/utils/zmq_utils.py:674)
    initialize_simple_storage (/e/lib/python3.11/site-packages/transfer_queue/storage/bootstrap/simple.py:85)
    run (/e/lib/python3.11/site-packages/verl/trainer/main_ppo.py:149)
"""


@pytest.mark.parametrize(("cpus", "pending"), [(4.0, True), (6.0, False)])
def test_storage_units_that_ray_does_not_list_are_pending_where_no_cpu_is_free(
    cpus: float, pending: bool
) -> None:
    """As in a run with 4 CPUs that reported no demand; with a free CPU it is stuck for another reason."""
    seen = [stack(IDLE, "ray::SimpleStorageUnit"), stack(STARTING_STORAGE, "ray::TaskRunnerV1")]
    found = evaluate(seen, ray(cpus=cpus, used=4.0))
    assert ("pending for want of resources" in found.what) is pending
    assert (found.signature == "transfer-queue-waits-for-cpus") is pending
    assert ("num_data_storage_units=1" in found.todo) is pending
