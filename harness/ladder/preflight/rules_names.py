"""Words that must be among those that this verl knows, and choices that contradict each other."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator

from harness.data.finding import Finding
from harness.ladder.preflight.facts import Facts
from harness.ladder.preflight.settings import ACTOR, ROLLOUT, Settings

_ENGINES = frozenset({"fsdp", "fsdp2", "fsdp_turbo", "megatron", "veomni", "torchtitan", "automodel"})


def _unknown(key: str, value: str, known: Iterable[str], why: str) -> Finding:
    names = sorted(known)
    near = difflib.get_close_matches(value, names, n=1)
    todo = f"did you mean {near[0]}? " if near else ""
    return Finding(
        id="unknown-name",
        key=key,
        what=f"{key}={value}: verl does not know it",
        why=why,
        todo=f"{todo}one of: {', '.join(names)}",
    )


def known(s: Settings, facts: Facts) -> Iterator[Finding]:
    """Names that verl looks up in a registry, mostly after the models were loaded."""
    names = facts.names
    for key, among, why in (
        ("algorithm.adv_estimator", names.estimators, "it is looked up after the first rollout"),
        (f"{ACTOR}.policy_loss.loss_mode", names.losses, "it is looked up at the first update"),
        (
            "trainer.resume_mode",
            {"auto", "disable", "resume_path"},
            "verl logs it, then fails on a path of None",
        ),
        (f"{ACTOR}.strategy", _ENGINES, "no engine is registered for it"),
    ):
        value = s.text(key)
        if value is not None and among and value not in among:
            yield _unknown(key, value, among, why)
    name = s.text("reward.reward_manager.name")
    registered = s.get("reward.reward_manager.source") == "register" and names.managers
    if registered and name is not None and name not in names.managers:
        why = "verl 0.9.1 looks in verl/experimental/reward_loop; batch and prime are in the old registry"
        yield _unknown("reward.reward_manager.name", name, names.managers, why)


def rollout(s: Settings, facts: Facts) -> Iterator[Finding]:
    """The rollout must be named; hf and the synchronous mode are gone."""
    name = s.text(f"{ROLLOUT}.name")
    if name in {None, "???", ""}:
        yield Finding(
            id="rollout-unset",
            key=f"{ROLLOUT}.name",
            what="the rollout engine is not named",
            why="it has no default since verl 0.6",
            todo=f"set {ROLLOUT}.name=vllm (or sglang, trtllm)",
        )
    elif facts.names.rollouts and name not in facts.names.rollouts:
        why = (
            "hf was removed from the registry in verl 0.6"
            if name == "hf"
            else "no such rollout is registered"
        )
        yield _unknown(f"{ROLLOUT}.name", str(name), facts.names.rollouts, why)
    mode = s.text(f"{ROLLOUT}.mode")
    if mode is not None and mode != "async":
        yield Finding(
            id="rollout-mode",
            key=f"{ROLLOUT}.mode",
            what=f"the rollout mode {mode} was removed",
            why="verl 0.9.1 knows only async: Rollout with mode sync not found",
            todo=f"remove {ROLLOUT}.mode",
        )


def loggers(s: Settings, facts: Facts) -> Iterator[Finding]:
    """Unknown loggers, and a wandb that would ask for a login where nobody answers."""
    given = s.get("trainer.logger")
    names = given if isinstance(given, list) else [given]
    for name in names:
        if isinstance(name, str) and facts.names.loggers and name not in facts.names.loggers:
            yield _unknown(
                "trainer.logger", name, facts.names.loggers, "verl asserts it when training begins"
            )
    if "wandb" in names and not facts.wandb_login:
        yield Finding(
            id="wandb-login",
            level="warning",
            key="trainer.logger",
            what="wandb has no account here",
            why="without a terminal it ends the run: api_key not configured (no-tty)",
            todo="set WANDB_API_KEY or WANDB_MODE=offline where it runs, or trainer.logger=[console]",
        )


def resume(s: Settings, facts: Facts) -> Iterator[Finding]:
    """Old checkpoints that are picked up unasked, and paths that cannot be resumed from."""
    mode = s.text("trainer.resume_mode")
    if mode == "auto" and facts.checkpoints:
        yield Finding(
            id="old-checkpoint",
            level="warning",
            key="trainer.resume_mode",
            what=f"{s.text('trainer.default_local_dir')} holds {facts.checkpoints[-1]} of an older run",
            why="resume_mode=auto loads it, also when it is of another model: Error(s) in loading state_dict",
            todo="set trainer.resume_mode=disable, or another trainer.experiment_name",
        )
    path = s.get("trainer.resume_from_path")
    if mode == "resume_path" and not (isinstance(path, str) and "global_step_" in path):
        yield Finding(
            id="resume-path",
            key="trainer.resume_from_path",
            what=f"trainer.resume_from_path is {path}",
            why="verl asserts a path with global_step_ in it when resume_mode=resume_path",
            todo="give the folder of one step, .../global_step_100",
        )


def devices(s: Settings, facts: Facts) -> Iterator[Finding]:
    """More GPUs than the process may see: Ray counts those of CUDA_VISIBLE_DEVICES."""
    visible = facts.environ.get("CUDA_VISIBLE_DEVICES")
    per_node = s.number("trainer.n_gpus_per_node", 8)
    if visible is not None and s.text("trainer.device") in {None, "cuda"}:
        count = len([part for part in visible.split(",") if part.strip()])
        if count < per_node:
            yield Finding(
                id="visible-devices",
                key="trainer.n_gpus_per_node",
                what=f"{per_node} GPUs a node, but CUDA_VISIBLE_DEVICES={visible} shows {count}",
                why="Total available GPUs is less than total desired GPUs; the default is 8",
                todo=f"set trainer.n_gpus_per_node={count}, or CUDA_VISIBLE_DEVICES before Ray starts",
            )


# verl 0.9.1: what their functions in core_algos.py read, and v1/trainer_base.py, _compute_advantage, does not
# fetch. A KeyError, an assertion or a missing argument after the first rollout.
_V0_ONLY = {
    "gdpo": "prompts, and each reward by name",
    "remax": "reward_baselines",
    "optimal_token_baseline": "sum_pi_squared",
    "tir_optimal_token_baseline": "sum_pi_squared",
}


def estimators_of_v0(s: Settings, _facts: Facts) -> Iterator[Finding]:
    """Advantage estimators that only the older trainer hands what they need."""
    name = s.text("algorithm.adv_estimator")
    if s.get("trainer.use_v1") is True and name is not None and name in _V0_ONLY:
        yield Finding(
            id="estimator-in-v0-only",
            key="algorithm.adv_estimator",
            what=f"{name} needs {_V0_ONLY[name]}, which the v1 trainer does not hand it",
            why="verl/trainer/ppo/v1/trainer_base.py, _compute_advantage: it fails after the first rollout",
            todo="set trainer.use_v1=False: verl's default is the v1 trainer",
        )


def contradictions(s: Settings, _facts: Facts) -> Iterator[Finding]:
    """Choices of which one undoes the other."""
    if s.get("algorithm.adv_estimator") == "gae" and s.get("critic.enable") is False:
        yield Finding(
            id="no-critic",
            key="critic.enable",
            what="gae needs the critic's values, and critic.enable is False",
            why="the advantage fails on missing values after the first rollout",
            todo="remove critic.enable, or choose grpo, rloo or reinforce_plus_plus",
        )
    if s.get(f"{ROLLOUT}.val_kwargs.do_sample") is True and s.get(f"{ROLLOUT}.temperature") == 0:
        yield Finding(
            id="temperature-zero",
            key=f"{ROLLOUT}.temperature",
            what="sampling with temperature 0",
            why="validate_config refuses it, and training on greedy responses explores nothing",
            todo="set a temperature above 0",
        )
    if s.flag("algorithm.use_kl_in_reward") and s.flag(f"{ACTOR}.use_kl_loss"):
        yield Finding(
            id="kl-twice",
            level="warning",
            key="algorithm.use_kl_in_reward",
            what="KL is in the reward and in the loss",
            why="verl only prints a notice; it is counted twice",
            todo="switch one of them off",
        )
    low, high = s.get(f"{ACTOR}.clip_ratio_low"), s.get(f"{ACTOR}.clip_ratio_high")
    vanilla = s.text(f"{ACTOR}.policy_loss.loss_mode") in {None, "vanilla"}
    if vanilla and isinstance(low, int | float) and isinstance(high, int | float) and low > high:
        yield Finding(
            id="clip-range",
            level="warning",
            key=f"{ACTOR}.clip_ratio_low",
            what=f"clip_ratio_low {low} is above clip_ratio_high {high}",
            why="low bounds the way down, high the way up; DAPO uses 0.2 and 0.28",
            todo="exchange them",
        )


def _overlong(s: Settings, _facts: Facts) -> Iterator[Finding]:
    """The dapo manager's length penalty: asserted in each reward worker."""
    if s.text("reward.reward_manager.name") != "dapo" or not s.flag(
        "reward.reward_kwargs.overlong_buffer_cfg.enable"
    ):
        return
    longest, buffer = (
        s.some("reward.reward_kwargs.max_resp_len"),
        s.some("reward.reward_kwargs.overlong_buffer_cfg.len"),
    )
    if longest is None or buffer is None or not 0 < buffer <= longest:
        yield Finding(
            id="overlong-buffer",
            key="reward.reward_kwargs.max_resp_len",
            what=f"max_resp_len is {longest}, overlong_buffer_cfg.len is {buffer}",
            why="the dapo reward manager asserts 0 < overlong_buffer_cfg.len <= max_resp_len in its workers",
            todo="set reward.reward_kwargs.max_resp_len to data.max_response_length",
        )


RULES = (known, rollout, loggers, resume, devices, estimators_of_v0, contradictions, _overlong)
