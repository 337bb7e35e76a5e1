"""Averages over gloo on two real ranks: FSDP2's gradients and verl's losses rest on them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch comes with the lock")
if sys.platform == "darwin":
    pytest.skip(
        "two ranks over gloo need a host name that resolves; a Mac's runner has none", allow_module_level=True
    )

from harness.adapt import names

ROOT = Path(__file__).parents[2]
# The sum of both ranks is 3, 6, 9, 12; each way of calling is one that FSDP2, verl or a user uses.
RANK = """
import json, sys
import torch
import torch.distributed as dist
from harness.adapt.patches import gloo
dist.init_process_group("cpu:gloo", init_method=f"file://{sys.argv[2]}", rank=int(sys.argv[1]), world_size=2)
if sys.argv[3] == "patched":
    gloo._apply(dist, None)
mean, out = dist.ReduceOp.AVG, {}
def ones(): return torch.tensor([1.0, 2.0, 3.0, 4.0]) * (1 + dist.get_rank())
x = ones(); dist.all_reduce(x, op=mean); out["all_reduce"] = x.tolist()
x = ones(); dist.all_reduce(x, mean, dist.group.WORLD); out["by position"] = x.tolist()
x = ones(); work = dist.all_reduce(x, op=mean, async_op=True); work.wait(); out["async"] = x.tolist()
x = ones(); dist.all_reduce(x); out["sum"] = x.tolist()
part = torch.empty(2); dist.reduce_scatter_tensor(output=part, input=ones(), op=mean, group=None)
out["reduce_scatter"] = part.tolist()
x = ones(); dist.distributed_c10d.all_reduce(x, op=mean); out["other name"] = x.tolist()
dist.barrier()
if dist.get_rank() == 0:
    print(json.dumps(out))
dist.destroy_process_group()
"""
MEAN, HALF = [1.5, 3.0, 4.5, 6.0], [1.5, 3.0]
RIGHT = {
    "all_reduce": MEAN,
    "by position": MEAN,
    "async": MEAN,
    "sum": [3.0, 6.0, 9.0, 12.0],
    "reduce_scatter": HALF,
    "other name": MEAN,
}


@pytest.mark.parametrize("state", ["patched", "as locked"])
def test_two_ranks_average(tmp_path: Path, state: str) -> None:
    """As locked: the patch is left out from torch 2.11 on, so this torch must be right by itself."""
    events = tmp_path / "events.jsonl"
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "VERLOCK_EVENTS": str(events),
        "OMP_NUM_THREADS": "1",
    }
    ranks = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", RANK, str(rank), str(tmp_path / "store"), state],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in (0, 1)
    ]
    said = [rank.communicate(timeout=120) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], said
    assert json.loads(said[0][0]) == RIGHT
    acted = [json.loads(line)["patch"] for line in events.read_text().splitlines()] if events.exists() else []
    assert acted == ([names.GLOO_AVERAGE] * 2 if state == "patched" else [])
