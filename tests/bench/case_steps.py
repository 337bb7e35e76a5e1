"""Seconds a step of GRPO: verl through the harness against TRL's GRPOTrainer, one model, task and shape."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

from measure import Aim, Case
from place import Place, checked, seconds_of

from harness.build.lock import folder as lock_folder
from harness.data import tiny_model, tiny_task, tiny_tokenizer
from harness.ladder.memory.models import shipped
from harness.profiles import load

TRL = ("trl==1.16.0",)
DIGITS = f"{Path(tiny_task.__file__).with_name('rewards.py')}:digits"
DRAWN = f"{Path(__file__).with_name('rewards.py')}:drawn"
RESPONSE = 16
# The first steps build caches on both sides.
WARM = 3
# What TRL's GRPOTrainer does not do either: it takes old log-probs from the update, and keeps activations.
AS_TRL = (
    "algorithm.rollout_correction.bypass_mode=True",
    "actor_rollout_ref.model.enable_gradient_checkpointing=False",
)
# Beside those, what saves time on two cores with one rank. The v0 trainer has no TransferQueue.
FASTEST = (
    *AS_TRL,
    "trainer.balance_batch=False",
    "actor_rollout_ref.rollout.agent.num_workers=2",
    "reward.num_workers=2",
)
# Fixed text: verl's own timers, and py-spy on each process for 10 s of 40 steps.
WHERE = (
    (
        "where the time goes, profiled once on 2026-11-30, not in this run (v0 with the settings of as TRL, "
        "0.56 s): gen 0.34, update_actor 0.19, update_weights 0.01, others 0.02"
    ),
    (
        "gen: the rollout's own batch takes 0.07 s; the agent loop's one thread is busy for 0.2 s: 48 % "
        "hydra.instantiate for each of 64 samples (1.1 ms, mostly OmegaConf.merge), 28 % verl's "
        "postprocessing and the reward worker's call, 18 % chat template and the server's call"
    ),
    (
        "update_actor: backward 32 %, log-probabilities row by row (without flash-attn) 25 %, tensordict "
        "15 %, the model's forward 13 %"
    ),
    "v1 besides: 0.15 s for TransferQueue's calls for each sample and prompt, and its buffer's polls",
    (
        "cut by settings: bypass_mode 0.12 s, balance_batch (one rank has nothing to balance) 0.02, two "
        "agent loops and reward workers 0.02 (v0) to 0.08 (v1); what is left is verl's code for each sample"
    ),
)


@dataclass(frozen=True, kw_only=True)
class Shape:
    """One GRPO step: ``prompts`` x ``group`` responses; ``steps`` of them, of which the first are warm-up."""

    model: Path
    train: Path
    reward: str
    prompts: int
    group: int
    steps: int


def tiny(place: Place) -> Iterator[Case]:
    """The tiny model."""
    folder = place.folder("steps-tiny")
    train, _ = tiny_task.write(folder, rows=64, seed=1)
    python = place.tool("trl", TRL, _pins(folder))
    model = tiny_model.write(folder / "tiny", 1)
    yield _case(
        "step-tiny",
        "tiny model",
        Shape(model=model, train=train, reward=DIGITS, prompts=8, group=8, steps=8),
        folder,
        python,
        aim=Aim(at_most=0.5),
        notes=(f"fastest: as TRL, and {', '.join(FASTEST[len(AS_TRL) :])}", *WHERE),
        fastest=True,
    )


def smollm2(place: Place) -> Iterator[Case]:
    """SmolLM2-135M's shape with random weights, which take as long as its own."""
    folder = place.folder("steps-smollm2")
    train, _ = tiny_task.write(folder, rows=64, seed=1)
    python = place.tool("trl", TRL, _pins(folder))
    yield _case(
        "step-smollm2-135m",
        "SmolLM2-135M's shape, random weights",
        Shape(model=_smollm2(folder / "smollm2"), train=train, reward=DRAWN, prompts=4, group=4, steps=6),
        folder,
        python,
        aim=Aim(at_least=1 / 1.2, against="TRL"),
    )


def _case(
    name: str,
    said: str,
    shape: Shape,
    folder: Path,
    python: Path,
    *,
    aim: Aim,
    notes: Sequence[str] = (),
    fastest: bool = False,
) -> Case:
    sides = {
        "verl (v1), as TRL": partial(_verl, folder, shape, "v1", *AS_TRL),
        "verl (v1)": partial(_verl, folder, shape, "v1"),
        "TRL": partial(_trl, python, folder, shape),
    }
    if fastest:
        sides = {
            "verl (v0), fastest": partial(_verl, folder, shape, "v0", *FASTEST),
            **sides,
            "verl (v0)": partial(_verl, folder, shape, "v0"),
        }
    size = f"{shape.prompts} prompts x {shape.group} responses x {RESPONSE} tokens"
    return Case(
        id=name,
        what=f"one step of GRPO, {said}, {size}",
        unit="s/step",
        sides=sides,
        rounds=2,
        aim=aim,
        notes=[
            f"as TRL: {', '.join(AS_TRL)}; the other sides have verl's defaults in both",
            *notes,
        ],
    )


def _smollm2(folder: Path) -> Path:
    """Its published configuration; the tiny tokenizer's 260 words are the first of its 49152."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    config = shipped()["SmolLM2-135M"]["config"]
    tokenizer = tiny_tokenizer.make()
    ends = {
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": None,
    }
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**config, **ends), dtype=torch.float32)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def _pins(folder: Path) -> Path:
    """The lock without its hashes, so that both sides have the same torch and transformers."""
    profile = load("cpu")
    lock = lock_folder(profile) / profile.software.targets[0].file
    pins = re.findall(r"^[A-Za-z0-9._-]+==[^\s;\\]+", lock.read_text(encoding="utf-8"), re.MULTILINE)
    path = folder / "pins.txt"
    path.write_text("\n".join(pins) + "\n")
    return path


def _verl(folder: Path, shape: Shape, trainer: str, *more: str) -> float:
    runs = folder / f"runs-{trainer}"
    together = shape.prompts * shape.group
    words = [
        *("--from", "ppo", "--algorithm", "grpo", "--trainer", trainer, "--steps", str(shape.steps)),
        *("--model", str(shape.model), "--data", str(shape.train), "--runs", str(runs)),
        *("--reward", shape.reward),
        f"data.train_batch_size={shape.prompts}",
        f"actor_rollout_ref.rollout.n={shape.group}",
        f"data.max_response_length={RESPONSE}",
        f"actor_rollout_ref.rollout.max_num_seqs={together}",
        f"actor_rollout_ref.actor.ppo_mini_batch_size={shape.prompts}",
        f"actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu={together}",
        f"actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu={together}",
        "actor_rollout_ref.actor.use_kl_loss=False",
        *more,
    ]
    checked([sys.executable, "-P", "-m", "harness", "climb", *words], cwd=folder)
    lines = (runs / "latest" / "metrics.jsonl").read_text().splitlines()
    steps = [json.loads(line)["data"] for line in lines]
    return median(float(step["timing_s/step"]) for step in steps[WARM:])


def _trl(python: Path, folder: Path, shape: Shape) -> float:
    script = Path(__file__).with_name("trl_steps.py")
    numbers = [str(number) for number in (shape.prompts, shape.group, RESPONSE, shape.steps, WARM)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [python, "-P", script, shape.model, shape.train, shape.reward.rpartition(":")[2], *numbers]
    return seconds_of(checked(command, cwd=folder, env=environment))
