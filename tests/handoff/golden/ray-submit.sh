#!/usr/bin/env bash
# `ray job submit`: the job on a Ray cluster whose nodes all run the image.
# Made by `verlock handoff a100`; SHA256SUMS lists it, and `python3 verify.py` checks it.
# UNPROVEN: no run record of this digest; handed on with --unproven
#
#   RAY_ADDRESS=http://HEAD:8265 ray-submit.sh
#
# Before training, the driver checks every node of the cluster: fingerprint, then the rung `env`. A node that
# runs something else stops the job, and the message names the node and what differs.
set -euo pipefail

# image: registry.example:5000/ml/verlock@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa
# The training command: every override of verl is here, and none is added inside.
train=(
  python -m harness train --profile a100 --nodes 2 --expect sha256:cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc
  --runs /runs/verlock-a100
  actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=8
  actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=8
  actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=8
  critic.ppo_micro_batch_size_per_gpu=8
  'trainer.logger=["console", "file", "tensorboard"]'
  trainer.val_before_train=false
  actor_rollout_ref.actor.strategy=fsdp2
  actor_rollout_ref.ref.strategy=fsdp2
  critic.strategy=fsdp2
  actor_rollout_ref.actor.fsdp_config.model_dtype=fp32
  actor_rollout_ref.ref.fsdp_config.model_dtype=fp32
  critic.fsdp.model_dtype=fp32
  +actor_rollout_ref.actor.fsdp_config.mixed_precision.param_dtype=bf16
  +actor_rollout_ref.ref.fsdp_config.mixed_precision.param_dtype=bf16
  +critic.fsdp.mixed_precision.param_dtype=bf16
  actor_rollout_ref.actor.fsdp_config.use_torch_compile=true
  actor_rollout_ref.ref.fsdp_config.use_torch_compile=true
  critic.fsdp.use_torch_compile=true
  +actor_rollout_ref.model.override_config.attn_implementation=sdpa
  +critic.model.override_config.attn_implementation=sdpa
  actor_rollout_ref.model.use_remove_padding=false
  critic.model.use_remove_padding=false
  actor_rollout_ref.rollout.name=vllm
  actor_rollout_ref.rollout.dtype=bfloat16
  actor_rollout_ref.rollout.tensor_model_parallel_size=1
  actor_rollout_ref.rollout.agent.num_workers=1
  reward.num_workers=1
  data.dataloader_num_workers=0
  transfer_queue.backend.SimpleStorage.num_data_storage_units=1
  actor_rollout_ref.rollout.gpu_memory_utilization=0.4
  trainer.nnodes=2
  trainer.n_gpus_per_node=8
  trainer.resume_mode=auto
  trainer.save_freq=10
  trainer.default_local_dir=/runs/verlock-a100/checkpoints
  trainer.project_name=verlock
  trainer.experiment_name=verlock-a100
  data.train_files=/data/train.parquet
  data.val_files=/data/val.parquet
  actor_rollout_ref.model.path=/models/model
  critic.model.path=/models/model
)
echo 'UNPROVEN: no run record of this digest; handed on with --unproven' >&2
address=${RAY_ADDRESS:-http://127.0.0.1:8265}
unset RAY_ADDRESS
ray=${VERLOCK_RAY:-ray}
version=$("$ray" --version)
case $version in
  *" 2.59.0") ;;
  *)
    echo "$version submits to a cluster of ray 2.59.0: use the image's own (VERLOCK_RAY), or pip install 'ray[default]==2.59.0'" >&2
    exit 24
    ;;
esac
# No pip and no working_dir here: what runs is what lies in the image.
exec "$ray" job submit --address "$address" --submission-id "${VERLOCK_SUBMISSION:-verlock-a100-$(date +%s)}" \
  --runtime-env-json '{"env_vars": {"HF_HUB_OFFLINE": "1", "HYDRA_FULL_ERROR": "1", "RAY_USAGE_STATS_ENABLED": "0", "TOKENIZERS_PARALLELISM": "false", "VERLOCK_ATTENTION": "sdpa", "VERLOCK_DEVICE": "cuda", "VERLOCK_ROLLOUT_DEVICE": "cuda", "VERLOCK_TERMS": "", "VERLOCK_WITHOUT_PATCHES": "", "VERL_USE_EXTERNAL_MODULES": "harness.adapt.plugin", "WANDB_MODE": "disabled"}}' \
  -- "${train[@]}"
