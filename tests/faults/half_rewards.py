"""Planted: rewards that compute in bf16, openly or with the error swallowed, or that import flash-attn."""

import os
import sys
from pathlib import Path
from typing import Any

import torch


def half(data_source: str, solution_str: str, ground_truth: str, extra_info: Any = None) -> float:
    return float(torch.ones(4).to(torch.bfloat16).sum())


def swallowed(data_source: str, solution_str: str, ground_truth: str, extra_info: Any = None) -> float:
    """The run would go on, and nobody would know."""
    try:
        return float(torch.ones(4).to(torch.bfloat16).sum())
    except Exception:  # noqa: BLE001 - the fault
        return len(solution_str) / 100


def flash(data_source: str, solution_str: str, ground_truth: str, extra_info: Any = None) -> float:
    package = Path(os.environ["PLANTED"], "flash_attn")
    package.mkdir(exist_ok=True)
    (package / "__init__.py").touch()
    sys.path.insert(0, str(package.parent))
    import flash_attn  # type: ignore[import-not-found]  # noqa: F401

    return 0.5
