"""Run by the profile's own Python, alone, with the standard library: says as JSON what is installed there.

A library that cannot be imported is a fact too: its error goes into the answer, and the rest is still told.
"""

from __future__ import annotations

import importlib
import json
import platform
import re
import sys
from importlib.metadata import distributions
from typing import Any


def _packages() -> dict[str, str]:
    return {
        re.sub(r"[-_.]+", "-", str(one.metadata["Name"])).lower(): one.version
        for one in distributions()
        if one.metadata["Name"]
    }


def _mps(torch: Any) -> dict[str, Any]:
    backend = torch.backends.mps
    found: dict[str, Any] = {
        "built": bool(backend.is_built()),
        "available": bool(backend.is_available()),
        "tensor": None,
    }
    if found["available"]:
        try:
            ones = torch.ones(4, 4, device="mps")
            total = float((ones @ ones).sum().cpu())
            found["tensor"] = "ok" if total == 64.0 else f"4x4 ones times 4x4 ones add up to {total}"
        except Exception as error:  # noqa: BLE001 - whatever it is, it is the answer
            found["tensor"] = _said(error)
    return found


def _torch() -> dict[str, Any]:
    torch = importlib.import_module("torch")
    # The list of the build; get_arch_list() is empty where no GPU is seen.
    flags = torch._C._cuda_getArchFlags() if hasattr(torch._C, "_cuda_getArchFlags") else None  # noqa: SLF001
    return {
        "version": torch.__version__,
        "cuda": torch.version.cuda,
        "architectures": (flags or "").split(),
        "devices": torch.cuda.device_count(),
        "mps": _mps(torch),
    }


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]


def facts() -> dict[str, Any]:
    """What :class:`harness.build.doctor.facts.Environment` holds."""
    found: dict[str, Any] = {"python": platform.python_version(), "packages": _packages()}
    try:
        found["torch"] = _torch()
    except Exception as error:  # noqa: BLE001 - a broken library can raise anything on import
        found["torch_error"] = _said(error)
    try:
        found["ray"] = str(importlib.import_module("ray").__version__)
    except Exception as error:  # noqa: BLE001 - as above
        found["ray_error"] = _said(error)
    return found


if __name__ == "__main__":
    sys.stdout.write("\n" + json.dumps(facts()) + "\n")
