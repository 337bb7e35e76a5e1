"""How far the rollout's probabilities may be from the trainer's."""


def probs_tolerance(*, is_tiny: bool) -> float:
    """The limit for ``training/rollout_probs_diff_max``, fp32 on both sides.

    Tiny model: measured 2e-9 to 7e-9, and 1.2e-4 with bf16 autocast. A pretrained model's probabilities
    are near 1 instead of 1/260, so the same rounding shows larger: SmolLM2-135M measured 1.3e-5.
    """
    return 1e-6 if is_tiny else 2e-4
