"""From the start of the process to the end of PPO step 2, with the same tiny model and task."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from measure import Aim, Case
from place import Place

STEP_2 = "ppo: step 2 of 2"
# What the profile shrinks, back at verl's own values (verl 0.9.1, verl/trainer/config).
VERL_DEFAULTS = (
    "actor_rollout_ref.rollout.agent.num_workers=8",
    "reward.num_workers=8",
    "data.dataloader_num_workers=8",
    "transfer_queue.backend.SimpleStorage.num_data_storage_units=8",
    "trainer.v1.sampler.custom_sampler.path=null",
    "trainer.v1.sampler.custom_sampler.name=null",
    "ray_kwargs.ray_init.num_cpus=32",
)


def cases(place: Place) -> Iterator[Case]:
    """Only the ppo rung, so that each side is one `main_ppo`; `cold` first empties the page cache of it."""
    folder = place.folder("climb")
    yield Case(
        id="start",
        what="start of the process to the end of PPO step 2 (verl's v1 trainer)",
        unit="s",
        sides={
            "climb, fork server": lambda: _step_2(folder),
            "climb, fork server, cold": lambda: _cold(folder),
            "climb --no-fork": lambda: _step_2(folder, "--no-fork"),
            "main_ppo, verl's worker counts": lambda: _step_2(folder, "--no-fork", *VERL_DEFAULTS),
        },
        rounds=3,
        aim=Aim(at_most=15),
        notes=[
            "cold means that the files of the environment were dropped from the page cache before",
            "verl's worker counts: eight agent loops, reward workers, loaders and storage units",
            "the plug-in is in all of them: plain verl does not run on a CPU",
        ],
    )


def _step_2(folder: Path, *words: str) -> float:
    command = [sys.executable, "-P", "-m", "harness", "climb", "--from", "ppo", "--steps", "2"]
    begin = time.perf_counter()
    with subprocess.Popen(
        [*command, "--runs", str(folder / "runs"), *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=dict(os.environ),
    ) as process:
        assert process.stdout is not None
        ended, said = None, []
        for line in process.stdout:
            said.append(line)
            if ended is None and STEP_2 in line:
                ended = time.perf_counter() - begin
    if process.returncode != 0 or ended is None:
        raise RuntimeError(f"the climb ended with {process.returncode}:\n{''.join(said)}"[-3000:])
    return ended


def _cold(folder: Path) -> float:
    os.sync()  # what is dirty stays in memory
    for path in Path(sys.prefix).rglob("*"):
        if path.is_file() and not path.is_symlink():
            file = os.open(path, os.O_RDONLY)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(file)
    return _step_2(folder)
