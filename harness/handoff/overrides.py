"""The Hydra overrides of a job on the cluster, all of them: nothing is added where it runs.

They are the profile's, without what describes Ray on one machine; the size of the job; where its files are;
and what was asked for. Later ones win.
"""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import JsonValue

from harness.handoff.words import bare
from harness.profiles import Profile

# Ray is started before the trainer on a cluster, and refuses these when it is only connected to.
LOCAL_RAY = "ray_kwargs.ray_init."
SITE = "/opt/verlock/lib/python{python}/site-packages/harness"
# verl has no default for them and refuses to start without; eight rows of a long sequence fit 40 GB.
_MICRO = (
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu",
    "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu",
    "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu",
    "critic.ppo_micro_batch_size_per_gpu",
)
_ROWS = 8


def for_job(
    profile: Profile, *, name: str, nodes: int, ranks: int, asked: Mapping[str, JsonValue]
) -> dict[str, JsonValue]:
    """Key (with its ``+``) to value, each key once.

    Args:
        profile: whose run policy, for its own hardware.
        name: the job's; its checkpoints are kept below it, so that the same job submitted again goes on.
        nodes: how many.
        ranks: training processes a node: its GPUs, or one on a CPU.
        asked: overrides of the user, and those that a local run carries over.
    """
    found: dict[str, JsonValue] = {}
    own: dict[str, JsonValue] = {
        "trainer.nnodes": nodes,
        "trainer.n_gpus_per_node": ranks,
        "trainer.resume_mode": "auto",
        "trainer.save_freq": 10,
        "trainer.default_local_dir": f"/runs/{name}/checkpoints",
        "trainer.project_name": "verlock",
        "trainer.experiment_name": name,
        "data.train_files": "/data/train.parquet",
        "data.val_files": "/data/val.parquet",
        "actor_rollout_ref.model.path": "/models/model",
        "critic.model.path": "/models/model",
    }
    for layer in (dict.fromkeys(_MICRO, _ROWS), _policy(profile), own, asked):
        for key, value in layer.items():
            # A key that verl's tree lacks keeps its + whoever gives it anew.
            spelt = next((known for known in found if known == f"+{key}"), key)
            found = {known: kept for known, kept in found.items() if bare(known) != bare(key)}
            found[spelt] = value
    return found


def _policy(profile: Profile) -> dict[str, JsonValue]:
    settings = dict(profile.run.overrides)
    if profile.run.device == "cpu":
        settings |= profile.run.on_cpu
    kept = {key: setting.value for key, setting in settings.items() if not bare(key).startswith(LOCAL_RAY)}
    if profile.run.rollout == "hf":
        # The harness's own rollout: its agent loop gives each sample a seed of its own.
        kept |= {
            "actor_rollout_ref.rollout.agent.agent_loop_config_path": in_image(
                profile, "adapt/agent_loop.yaml"
            ),
            "actor_rollout_ref.rollout.agent.default_agent_loop": "verlock_single_turn",
        }
    return kept


def in_image(profile: Profile, file: str) -> str:
    """Where a file of the harness lies in the profile's image."""
    return f"{SITE.format(python=profile.software.python)}/{file}"
