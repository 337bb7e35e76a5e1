"""The patches' names, for a command line that must not import verl to check a word."""

PROCESS_GROUP_BACKEND = "process-group-backend"
ENGINE_SEED = "engine-seed"
VALUE_HEAD_ATTENTION = "value-head-attention"
OFFLOAD_WITHOUT_PINNING = "offload-without-pinning"
GLOO_AVERAGE = "gloo-avg"
CPU_DEVICE = "cpu-device"
ENGINE_AUTOCAST = "engine-autocast"
PADDING_FUNCTIONS = "padding-functions"
WHOLE_WEIGHTS = "whole-weights"
PADDED_MASK = "padded-mask"

PATCH_NAMES = (
    PROCESS_GROUP_BACKEND,
    ENGINE_SEED,
    VALUE_HEAD_ATTENTION,
    OFFLOAD_WITHOUT_PINNING,
    GLOO_AVERAGE,
    CPU_DEVICE,
    ENGINE_AUTOCAST,
    PADDING_FUNCTIONS,
    WHOLE_WEIGHTS,
    PADDED_MASK,
)
