"""Reads the facts of this machine: the only part of the doctor that touches it."""

from __future__ import annotations

import csv
import json
import os
import platform
import resource
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil

from harness.build import engine
from harness.build.doctor import facts as model
from harness.build.environment import find
from harness.errors import ToolMissingError
from harness.evidence import abandoned
from harness.profiles import Profile, root

_SECONDS = 60
_NVIDIA = "0x10de"
_DISPLAY = ("0x0300", "0x0302")  # VGA controller, 3D controller
# The first is the kernel's limit for version 2 of control groups, the others for version 1.
_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def gather(profile: Profile | None, runs: Path) -> model.Facts:
    """All facts; those of the environment are of ``profile``, and absent where it was not made.

    Raises:
        ToolMissingError: a system that no profile is for.
    """
    return model.Facts(
        host=_host(),
        memory=_memory(),
        disk=_space(root()),
        shm=_space(Path("/dev/shm")) if Path("/dev/shm").is_dir() else None,  # noqa: S108 - only measured
        ulimits=_ulimits(),
        nvidia=_nvidia(),
        environment=environment(profile) if profile else None,
        engines=tuple(
            model.Engine(title=one.title(), usable=one.usable, missing=one.missing, remedy=one.remedy)
            for one in engine.find()
        ),
        leftovers=model.Leftovers(
            processes=sum(map(len, abandoned.left_over(runs).values())),
            ray_folders=len(abandoned.ray_folders()),
        ),
    )


def environment(profile: Profile) -> model.Environment | None:
    """Ask the profile's own Python; none where there is none."""
    python = find(profile)
    return None if python is None else ask(python)


def ask(python: Path) -> model.Environment:
    """Run the probe with an interpreter. Isolated: no folder of the caller's can stand in for a package."""
    probe = Path(__file__).with_name("probe.py")
    try:
        done = subprocess.run(
            [python, "-I", probe], capture_output=True, text=True, check=False, timeout=_SECONDS * 3
        )
        return model.Environment.model_validate_json(done.stdout.strip().splitlines()[-1])
    except subprocess.TimeoutExpired:
        told = f"no answer within {_SECONDS * 3} s"
    except (IndexError, ValueError):
        told = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    except OSError as error:
        told = str(error)
    return model.Environment(python="unknown", packages={}, torch_error=told, ray_error=told)


def _host() -> model.Host:
    system = platform.system().lower()
    if system not in ("linux", "darwin"):
        raise ToolMissingError(
            f"verlock does not run on {platform.system()}", todo="use Linux or macOS; on Windows, WSL2"
        )
    return model.Host(
        system="linux" if system == "linux" else "darwin",
        machine=platform.machine(),
        release=platform.release(),
        macos=platform.mac_ver()[0] or None,
        glibc=platform.libc_ver()[1] or None if system == "linux" else None,
        cpus=_cpus(),
        container=_in_container(),
    )


def _cpus() -> int:
    """Those that this process may use: a container or a batch job is often given a few of many."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _in_container() -> bool:
    if Path("/.dockerenv").exists() or Path("/run/.containerenv").exists():
        return True
    with suppress(OSError):
        text = Path("/proc/1/cgroup").read_text(encoding="utf-8")
        return any(word in text for word in ("docker", "kubepods", "containerd", "libpod"))
    return False


def _memory() -> model.Memory:
    memory = psutil.virtual_memory()
    limits = [int(text) for path in _LIMITS if (text := _text(path)).isdigit()]
    limit = min((n for n in limits if n < memory.total), default=None)
    available = memory.available if limit is None else min(memory.available, limit)
    return model.Memory(total=memory.total, available=min(available, memory.total), limit=limit)


def _space(path: Path) -> model.Space:
    usage = shutil.disk_usage(path)
    return model.Space(total=usage.total, free=min(usage.free, usage.total))


def _ulimits() -> model.Ulimits:
    def limit(kind: int, side: int) -> int | None:
        value = resource.getrlimit(kind)[side]
        return None if value == resource.RLIM_INFINITY else value

    return model.Ulimits(
        files_soft=limit(resource.RLIMIT_NOFILE, 0),
        files_hard=limit(resource.RLIMIT_NOFILE, 1),
        processes_soft=limit(resource.RLIMIT_NPROC, 0),
    )


def _nvidia() -> model.Nvidia:
    devices = Path("/sys/bus/pci/devices")
    on_bus = sum(
        _text(one / "vendor") == _NVIDIA and _text(one / "class").startswith(_DISPLAY)
        for one in (devices.iterdir() if devices.is_dir() else ())
    )
    nodes = len([one for one in Path("/dev").glob("nvidia*") if one.name.removeprefix("nvidia").isdigit()])
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    smi = shutil.which("nvidia-smi")
    if smi is None:
        return model.Nvidia(on_bus=on_bus, nodes=nodes, visible=visible)
    # A driver before 510 does not know compute_cap, and refuses the whole question.
    for fields in (
        "name,driver_version,memory.total,memory.used,compute_cap",
        "name,driver_version,memory.total,memory.used",
    ):
        code, said = _ask(smi, f"--query-gpu={fields}", "--format=csv,noheader,nounits")
        if code == 0 and said:
            driver, cards = parse(said)
            return model.Nvidia(
                on_bus=on_bus, nodes=nodes, smi=True, driver=driver, cards=cards, visible=visible
            )
    silence = (said.splitlines() or ["no answer"])[0]
    return model.Nvidia(on_bus=on_bus, nodes=nodes, smi=True, silence=silence, visible=visible)


def parse(said: str) -> tuple[str, tuple[model.Card, ...]]:
    """Driver and cards from nvidia-smi's lines of name, driver, total and used MiB, and capability."""
    rows = list(csv.reader(said.splitlines(), skipinitialspace=True))
    cards = tuple(
        model.Card(
            name=row[0],
            memory_mib=int(row[2]),
            used_mib=int(row[3]),
            capability=row[4] if len(row) > 4 else None,
        )
        for row in rows
    )
    return rows[0][1], cards


def _ask(program: str, *arguments: str) -> tuple[int, str]:
    try:
        done = subprocess.run(
            [program, *arguments], capture_output=True, text=True, check=False, timeout=_SECONDS
        )
    except subprocess.TimeoutExpired:
        return 124, f"nvidia-smi does not answer within {_SECONDS} s: the driver hangs"
    except OSError as error:
        return 126, str(error)
    return done.returncode, (done.stdout or done.stderr).strip()


def _text(path: str | Path) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def write(facts: model.Facts) -> str:
    """The facts as a file that :func:`harness.build.doctor.facts.load` reads."""
    return json.dumps(facts.model_dump(mode="json"), indent=2) + "\n"
