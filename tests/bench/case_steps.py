"""Seconds a step of GRPO: verl through the harness against TRL's GRPOTrainer, one model, task and shape."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from measure import Aim, Case
from place import Place, checked, seconds_of

from harness.build.lock import folder as lock_folder
from harness.data import tiny_model, tiny_task
from harness.profiles import load

TRL = ("trl==1.16.0",)
PROMPTS, GROUP, RESPONSE, STEPS = 8, 8, 16, 8
# By verl's own timers and py-spy, 60 steps of the tiny model, v1, on a busy machine: shares, not times.
WHERE = (
    "where verl's step goes: gen 45 %, update_actor 31 %, old_log_prob 19 %, adv 3 %, update_weights 1 %",
    "the agent loop's own time within gen: 28 % hydra.instantiate for each sample, 18 % TransferQueue,",
    "16 % to the reward worker, 13 % the loop itself: verl's code for each sample; no setting known to help",
)
# The first steps build caches on both sides.
WARM = 3


def cases(place: Place) -> Iterator[Case]:
    """The tiny model and task; with VERLOCK_BENCH_MODEL=PATH, a model of the user's as well."""
    folder = place.folder("steps")
    train, _ = tiny_task.write(folder, rows=64, seed=1)
    models = {"tiny": (tiny_model.write(folder / "tiny", 1), Aim(at_most=0.5))}
    given = os.environ.get("VERLOCK_BENCH_MODEL")
    if given:
        models[Path(given).name] = (Path(given), Aim(at_least=1 / 1.2, against="TRL"))
    python = place.tool("trl", TRL, _pins(folder))
    for name, (model, aim) in models.items():
        group = GROUP if name == "tiny" else 4
        prompts = PROMPTS if name == "tiny" else 4
        yield Case(
            id=f"step-{name}",
            what=f"one step of GRPO, {name} model, {prompts} prompts x {group} responses x {RESPONSE} tokens",
            unit="s/step",
            sides={
                "verl (v1)": lambda model=model, p=prompts, g=group: _verl(folder, model, train, "v1", p, g),
                "verl (v1), old log-probs of the rollout": lambda model=model, p=prompts, g=group: _verl(
                    folder, model, train, "v1", p, g, "algorithm.rollout_correction.bypass_mode=True"
                ),
                "verl (v0)": lambda model=model, p=prompts, g=group: _verl(folder, model, train, "v0", p, g),
                "TRL": lambda model=model, p=prompts, g=group: _trl(python, folder, model, train, p, g),
            },
            rounds=2,
            aim=aim,
            notes=[
                "TRL's step has no pass for old log-probs either: it takes them from the update itself",
                *WHERE,
            ],
        )


def _pins(folder: Path) -> Path:
    """The lock without its hashes, so that both sides have the same torch and transformers."""
    profile = load("cpu")
    lock = lock_folder(profile) / profile.software.targets[0].file
    pins = re.findall(r"^[A-Za-z0-9._-]+==[^\s;\\]+", lock.read_text(encoding="utf-8"), re.MULTILINE)
    path = folder / "pins.txt"
    path.write_text("\n".join(pins) + "\n")
    return path


def _verl(
    folder: Path, model: Path, train: Path, trainer: str, prompts: int, group: int, *more: str
) -> float:
    runs = folder / f"runs-{trainer}"
    words = [
        *("--from", "ppo", "--algorithm", "grpo", "--trainer", trainer, "--steps", str(STEPS)),
        *("--model", str(model), "--data", str(train), "--runs", str(runs)),
        *("--reward", f"{Path(tiny_task.__file__).with_name('rewards.py')}:digits"),
        f"data.train_batch_size={prompts}",
        f"actor_rollout_ref.rollout.n={group}",
        f"data.max_response_length={RESPONSE}",
        f"actor_rollout_ref.rollout.max_num_seqs={prompts * group}",
        f"actor_rollout_ref.actor.ppo_mini_batch_size={prompts}",
        f"actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu={prompts * group}",
        f"actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu={prompts * group}",
        "actor_rollout_ref.actor.use_kl_loss=False",
        *more,
    ]
    checked([sys.executable, "-P", "-m", "harness", "climb", *words], cwd=folder)
    lines = (runs / "latest" / "metrics.jsonl").read_text().splitlines()
    steps = [json.loads(line)["data"] for line in lines]
    return median(float(step["timing_s/step"]) for step in steps[WARM:])


def _trl(python: Path, folder: Path, model: Path, train: Path, prompts: int, group: int) -> float:
    script = Path(__file__).with_name("trl_steps.py")
    shape = [str(number) for number in (prompts, group, RESPONSE, STEPS, WARM)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return seconds_of(checked([python, "-P", script, model, train, *shape], cwd=folder, env=environment))
