#!/usr/bin/env bash
# Plain Docker: runs the job on this machine, or makes this machine a node of a Ray cluster.
# Made by `verlock handoff a100`; SHA256SUMS lists it, and `python3 verify.py` checks it.
# UNPROVEN: no run record of this digest; handed on with --unproven
#
#   docker-run.sh                train here, on one node
#   docker-run.sh check          only check this node
#   docker-run.sh head           be the head of a Ray cluster (then: ray-submit.sh)
#   docker-run.sh worker HOST    join the cluster whose head is HOST
set -euo pipefail

# By digest only. VERLOCK_IMAGE may name another place of the same image: HOST/PATH@sha256:...
manifest=sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa
config=sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb # Docker's ID, where images are not in containerd's store
image=${VERLOCK_IMAGE:-registry.example:5000/ml/verlock@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa}
name=${image%@*}
if [ "$image" != "$name@$manifest" ] || [[ ${name##*/} == *:* ]]; then
  echo "VERLOCK_IMAGE=$image is refused: it must be HOST/PATH@$manifest, without a tag" >&2
  exit 35
fi
VERLOCK_DATA=${VERLOCK_DATA:-./data} # Parquet files, read only.
VERLOCK_MODELS=${VERLOCK_MODELS:-./models} # Model folders, read only.
VERLOCK_RUNS=${VERLOCK_RUNS:-./runs} # Run records and checkpoints, writable.
for folder in "$VERLOCK_DATA" "$VERLOCK_MODELS" "$VERLOCK_RUNS"; do
  if [ ! -d "$folder" ]; then
    echo "there is no folder $folder: make it, or name another one (VERLOCK_DATA, VERLOCK_MODELS, VERLOCK_RUNS)" >&2
    exit 2
  fi
done
VERLOCK_DATA=$(cd "$VERLOCK_DATA" && pwd)
VERLOCK_MODELS=$(cd "$VERLOCK_MODELS" && pwd)
VERLOCK_RUNS=$(cd "$VERLOCK_RUNS" && pwd)
check='[ -w /runs ] || { echo "the volume /runs (VERLOCK_RUNS outside) cannot be written by the user that the job runs as: give it to that user (docker-run.sh: 1000)" >&2; exit 16; }; python -m harness fingerprint --profile a100 --expect sha256:cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc && python -m harness climb --profile a100 --to env --runs /runs/verlock-a100/nodes'
echo 'UNPROVEN: no run record of this digest; handed on with --unproven' >&2
archive=$(cd "$(dirname "$0")/.." && pwd)/image.tar
docker=${VERLOCK_DOCKER:-docker}
find_image() {
  local name
  for name in "$image" "$manifest" "$config"; do
    if "$docker" image inspect "$name" >/dev/null 2>&1; then
      echo "$name"
      return
    fi
  done
  return 1
}
# The archive if it lies there, else the registry; what came must have the digest.
get_image() {
  if find_image >/dev/null; then return; fi
  if [ -f "$archive" ]; then
    echo "loading $archive" >&2
    "$docker" load --quiet --input "$archive" >&2
  else
    "$docker" pull --quiet "$image" >&2
  fi
  if ! find_image >/dev/null; then
    echo "the image that came is not $manifest" >&2
    exit 36
  fi
}
get_image
found=$(find_image)
user=$(id -u):$(id -g)
if [ "$(id -u)" = 0 ]; then user=1000:1000; fi # never root inside: /runs must be writable for 1000 then
options=(
  --rm --init --user "$user" --env USER=verlock --read-only --tmpfs "/tmp:rw,exec,mode=1777"
  --network "${VERLOCK_NETWORK:-host}" --shm-size 64g
  --gpus all --ulimit memlock=-1
  --volume "$VERLOCK_DATA:/data:ro"
  --volume "$VERLOCK_MODELS:/models:ro"
  --volume "$VERLOCK_RUNS:/runs"
  --env HYDRA_FULL_ERROR=1
  --env HF_HUB_OFFLINE=1
  --env TOKENIZERS_PARALLELISM=false
  --env RAY_USAGE_STATS_ENABLED=0
  --env WANDB_MODE=disabled
  --env VERLOCK_DEVICE=cuda
  --env VERLOCK_ROLLOUT_DEVICE=cuda
  --env VERLOCK_ATTENTION=sdpa
  --env VERLOCK_WITHOUT_PATCHES=
  --env VERLOCK_TERMS=
  --env VERL_USE_EXTERNAL_MODULES=harness.adapt.plugin
  --memory "${VERLOCK_MEMORY:-512g}"
)
if [ -n "${VERLOCK_CONTAINER:-}" ]; then options+=(--name "$VERLOCK_CONTAINER" --hostname "$VERLOCK_CONTAINER"); fi

# Checks this node, then becomes the command.
start() { exec "$docker" run "${options[@]}" --entrypoint sh "$found" -c "$check"' && exec "$@"' verlock "$@"; }

case ${1:-train} in
  train)
    echo "this job is for 2 nodes: start one head and 1 workers, then ray-submit.sh" >&2
    exit 2
    ;;
  check) exec "$docker" run "${options[@]}" --entrypoint sh "$found" -c "$check" ;;
  head) start ray start --head --block --port=6379 --dashboard-host=0.0.0.0 --disable-usage-stats --num-gpus=8 --object-store-memory=61847529062 ;;
  worker) start ray start --block --address="${2:?worker HOST}:6379" --disable-usage-stats --num-gpus=8 --object-store-memory=61847529062 ;;
  *)
    echo "usage: docker-run.sh [train | check | head | worker HOST]" >&2
    exit 2
    ;;
esac
