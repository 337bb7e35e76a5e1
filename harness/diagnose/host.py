"""What is known of the host that failed. The same words have different causes on different hosts."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

import psutil
from pydantic import BaseModel, ConfigDict, ValidationError

from harness.diagnose.lines import Line
from harness.profiles.model import Profile

System = Literal["linux", "darwin"]
Machine = Literal["x86_64", "arm64"]

_GPU_NAMES = re.compile(
    r"\b(?:Tesla [A-Z]\w+|NVIDIA (?:A|H|B|L|RTX|GeForce)\w*|GeForce [GR]TX|[AHV]\d{2,3}-(?:SXM|PCIE)"
    r"|MI\d{3}X?|cuda:[1-7])\b"
)
_NO_GPU = re.compile(
    r"No supported accelerator detected|trainer\.device=cpu\b|'device': 'cpu'|\d\+cpu\b"
    r"|CUDA_VISIBLE_DEVICES contains \[\]|device type cpu\b"
)
_STEP = re.compile(r"\bstep:\d+ - ")


class Host(BaseModel):
    """Facts of one host; ``None`` where nothing is known."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    gpus: int | None = None
    gpu_names: tuple[str, ...] = ()
    system: System | None = None
    machine: Machine | None = None
    cpus: int | None = None
    memory_bytes: int | None = None
    shm_bytes: int | None = None
    cuda_visible_devices: str | None = None

    def over(self, other: Host) -> Host:
        """These facts, and the other's where these say nothing."""
        mine = {key: value for key, value in self.model_dump().items() if value not in {None, ()}}
        return Host.model_validate({**other.model_dump(), **mine})

    @classmethod
    def from_event(cls, fields: Mapping[str, Any]) -> Self:
        """The facts that a climb wrote into its events; nothing where they cannot be read."""
        try:
            return cls.model_validate(dict(fields))
        except ValidationError:
            return cls()


def here() -> Host:
    """This machine, without importing torch: GPUs as the driver's own tool counts them."""
    names = _nvidia_smi()
    machine: Machine = "arm64" if platform.machine().lower() in {"arm64", "aarch64"} else "x86_64"
    return Host(
        gpus=len(names),
        gpu_names=tuple(names),
        system="darwin" if platform.system() == "Darwin" else "linux",
        machine=machine,
        cpus=_cpus(),
        memory_bytes=psutil.virtual_memory().total,
        shm_bytes=shutil.disk_usage("/dev/shm").total if Path("/dev/shm").is_dir() else None,  # noqa: S108
        cuda_visible_devices=os.environ.get("CUDA_VISIBLE_DEVICES"),
    )


def _cpus() -> int | None:
    """Those that this process may use: what Ray counts without a container's quota."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count()


def _nvidia_smi() -> list[str]:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    try:
        done = subprocess.run(
            [tool, "--query-gpu=name", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            check=False,
            timeout=20,
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return done.stdout.strip().splitlines() if done.returncode == 0 else []


def of_profile(profile: Profile) -> Host:
    """What a profile says of its machine."""
    system, _, machine = profile.hardware.platform.partition("/")
    return Host(
        gpus=0 if profile.run.device == "cpu" else 1,
        system="darwin" if system == "macos" else "linux",
        machine="arm64" if machine == "arm64" else "x86_64",
    )


def of_log(lines: Sequence[Line]) -> Host:
    """What a log itself betrays: a GPU's name, a device, or that steps were trained."""
    if any(_NO_GPU.search(line.text) for line in lines):
        return Host(gpus=0)
    if any(_GPU_NAMES.search(line.text) or _STEP.search(line.text) for line in lines):
        return Host(gpus=1)
    return Host()
