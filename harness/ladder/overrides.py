"""The Hydra overrides of a trainer run: the profile's, then the rung's, then the user's.

Later ones win. Each is one word of the command line that the real ``main_ppo`` is started with.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import harness
from harness.adapt import verls
from harness.ladder.inputs import Inputs
from harness.ladder.options import ClimbOptions
from harness.profiles.hydra import word
from harness.profiles.model import Profile

ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
AGENT_LOOPS = Path(harness.__file__).parent / "adapt" / "agent_loop.yaml"
# How much the card holds at once is the profile's to say: a rung's choice is only for profiles that do not.
_FITS = "micro_batch_size_per_gpu"


def for_rung(options: ClimbOptions, inputs: Inputs, *, rollout: str, steps: int) -> dict[str, object]:
    """What a trainer rung sets: small, seeded, and with everything logged that its checks read."""
    responses = inputs.batch * inputs.group
    reward = options.reward_function()
    settings: dict[str, object] = {
        "data.train_files": str(inputs.train),
        "data.val_files": str(inputs.val),
        "data.train_batch_size": inputs.batch,
        "data.max_prompt_length": inputs.prompt_length,
        "data.max_response_length": inputs.response_length,
        "data.seed": options.seed,
        "data.filter_overlong_prompts": not inputs.is_tiny,
        "data.train_max_samples": -1 if inputs.is_tiny else max(64, inputs.batch * steps),
        "actor_rollout_ref.model.path": str(inputs.model),
        f"{ROLLOUT}.name": rollout,
        f"{ROLLOUT}.seed": options.seed,
        f"{ROLLOUT}.n": inputs.group,
        # The rows of a generation batch; the rollout caps them (harness/adapt/rollout/loader.py).
        f"{ROLLOUT}.max_num_seqs": responses,
        f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu": responses,
        f"{ROLLOUT}.calculate_log_probs": True,
        f"{ROLLOUT}.agent.agent_loop_config_path": str(AGENT_LOOPS),
        f"{ROLLOUT}.agent.default_agent_loop": "verlock_single_turn",
        "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu": responses,
        f"{ACTOR}.ppo_mini_batch_size": max(inputs.batch // 2, 1),
        f"{ACTOR}.ppo_micro_batch_size_per_gpu": max(responses // 2, 1),
        f"{ACTOR}.optim.lr": 1e-3 if inputs.is_tiny else 1e-5,
        f"{ACTOR}.use_kl_loss": True,
        f"{ACTOR}.fsdp_config.seed": options.seed,
        "trainer.total_training_steps": steps,
        "trainer.total_epochs": 1000,
        "trainer.test_freq": -1,
        "trainer.save_freq": -1,
        "trainer.use_v1": options.use_v1,
        "trainer.project_name": "verlock",
        "trainer.experiment_name": options.profile,
    }
    if reward is not None:
        settings |= {
            "reward.custom_reward_function.path": str(reward[0]),
            "reward.custom_reward_function.name": reward[1],
        }
    if options.use_v1:
        settings |= {
            "trainer.v1.sampler.custom_sampler.path": str(AGENT_LOOPS.with_name("replay_buffer.py")),
            "trainer.v1.sampler.custom_sampler.name": "OrderedReplayBuffer",
        }
    return settings | _algorithm(options, inputs)


def _algorithm(options: ClimbOptions, inputs: Inputs) -> dict[str, object]:
    if options.algorithm == "dapo":
        return _dapo(options, inputs)
    if options.algorithm != "ppo":
        return {"algorithm.adv_estimator": options.algorithm}
    return {
        "algorithm.adv_estimator": "gae",
        "critic.model.path": str(inputs.model),
        "critic.ppo_micro_batch_size_per_gpu": max(inputs.batch // 2, 1),
        "critic.optim.lr": 1e-3 if inputs.is_tiny else 1e-5,
        "critic.fsdp.seed": options.seed,
    }


def _dapo(options: ClimbOptions, inputs: Inputs) -> dict[str, object]:
    """GRPO with what DAPO adds: a higher upper clip, no KL, a length penalty, and no group without a spread.

    Its numbers are those of the paper (arXiv:2503.14476), its penalty that of verl's dapo reward manager.
    The filter of groups is the v1 trainer's; the v0 trainer does not read it.
    """
    settings: dict[str, object] = {
        "algorithm.adv_estimator": "grpo",
        f"{ACTOR}.use_kl_loss": False,
        f"{ACTOR}.clip_ratio_low": 0.2,
        f"{ACTOR}.clip_ratio_high": 0.28,
        f"{ACTOR}.clip_ratio_c": 10.0,
        f"{ACTOR}.loss_agg_mode": "token-mean",
        "reward.reward_manager.name": "dapo",
        "+reward.reward_kwargs.max_resp_len": inputs.response_length,
        "+reward.reward_kwargs.overlong_buffer_cfg.enable": True,
        "+reward.reward_kwargs.overlong_buffer_cfg.len": max(inputs.response_length // 4, 1),
        "+reward.reward_kwargs.overlong_buffer_cfg.penalty_factor": 1.0,
        "+reward.reward_kwargs.overlong_buffer_cfg.log": False,
    }
    if options.use_v1:
        settings |= {"algorithm.filter_groups.enable": True, "algorithm.filter_groups.metric": "acc"}
    return settings


def words(
    profile: Profile, rung: Mapping[str, object], user: tuple[str, ...], *, on_cpu: bool = True
) -> list[str]:
    """All overrides as command-line words, each key once: a later layer replaces an earlier one.

    ``~KEY`` takes an earlier layer's word back. ``on_cpu`` lays the profile's own settings for a CPU on top
    of its others, as in a rehearsal.
    """
    merged: dict[str, str] = {}
    policy = profile.overrides(rehearse=on_cpu)
    chosen = {key: value for key, value in rung.items() if not (key in policy and key.endswith(_FITS))}
    ours = verls.settings({**policy, **chosen}, profile.software.verl, on_cpu=on_cpu)
    layers = [word(key, value) for key, value in ours.items()]
    for text in [*layers, *user]:
        key = text.split("=", 1)[0]
        bare = key.lstrip("+~")
        added = any(known.lstrip("+") == bare for known in merged if known.startswith("+"))
        # `+key` and `key` name the same key; keep the user's spelling, else verl's struct check fails.
        merged = {k: v for k, v in merged.items() if k.lstrip("+~") != bare}
        if not (key.startswith("~") and added):  # taken back: nothing is left for Hydra to delete
            merged[key] = text
    return list(merged.values())
