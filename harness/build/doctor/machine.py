"""Checks of the machine itself: system, memory, disk, shared memory, limits, what was left behind. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from harness.build.audit.limits import is_version, older
from harness.build.doctor import bounds
from harness.build.doctor.facts import Facts
from harness.build.doctor.finding import Finding, Measure
from harness.errors import WrongMachineError


def host(facts: Facts, against: Measure) -> Iterator[Finding]:
    """Whether the profile's lock is for such a machine, and its system new and large enough."""
    profile, here = against.profile, facts.host
    meant = profile.hardware.platform
    native = {"linux": "linux", "macos": "darwin"}[meant.partition("/")[0]]
    try:
        target = profile.target(here.system, here.machine)
    except WrongMachineError:
        target = None
    if target is None or here.system != native:
        yield Finding(
            id="host.system",
            severity="error",
            what=f"{profile.name} is for {meant}, and this is {here.system}/{here.machine}",
            reason="wheels of another system or processor cannot be installed here",
            remedy="use the profile of this machine: `verlock doctor` without --profile chooses it",
        )
        return
    floor = profile.software.macos_floor
    if floor and here.macos and is_version(here.macos) and older(here.macos, floor):
        yield Finding(
            id="host.macos",
            severity="error",
            what=f"macOS {here.macos} is older than {floor}",
            reason="the locked wheels of torch and tensordict are built for it",
            remedy=f"update to macOS {floor} or newer",
        )
    wanted = next((v for tag, v in bounds.GLIBC.items() if tag in target.python_platform), None)
    if wanted and here.glibc and is_version(here.glibc) and older(here.glibc, ".".join(map(str, wanted))):
        yield Finding(
            id="host.glibc",
            severity="error",
            what=f"the C library is {here.glibc}, and the locked wheels need {wanted[0]}.{wanted[1]}",
            reason=f"the lock is resolved for {target.python_platform} (PEP 600)",
            remedy="use a newer distribution, or the profile's image",
        )
    if here.cpus < bounds.CPUS:
        yield Finding(
            id="host.cpus",
            severity="warning",
            what=f"{here.cpus} CPU",
            reason="Ray and its workers share it: starting takes minutes, and heartbeats can time out",
            remedy=f"give {bounds.CPUS} or more",
        )


def memory(facts: Facts, against: Measure) -> Iterator[Finding]:
    """What the machine has, or its control group allows, against the profile and against a smoke run."""
    profile = against.profile
    limited = facts.memory.limit is not None and facts.memory.limit < facts.memory.total
    have = min(facts.memory.total, facts.memory.limit or facts.memory.total)
    wanted = profile.hardware.memory_gib * bounds.GIB
    if have < wanted * bounds.MEMORY_SHARE:
        source = "the control group allows" if limited else "the machine has"
        small = have < bounds.SMOKE_MEMORY
        yield Finding(
            id="memory.total",
            severity="error" if small else "warning",
            what=f"{source} {_gib(have)}, and {profile.name} counts on {profile.hardware.memory_gib:g} GiB",
            reason="the kernel ends the largest process when it runs out; Ray then reports ActorDiedError"
            if small
            else "the tiny model fits, a real one may not: `verlock plan memory` says which",
            remedy="raise the container's limit (docker run --memory)" if limited else "use a smaller model",
        )
    if facts.memory.available < bounds.SMOKE_MEMORY <= have:
        yield Finding(
            id="memory.available",
            severity="warning",
            what=f"{_gib(facts.memory.available)} of {_gib(have)} are available now",
            reason=f"the default climb needs {_gib(bounds.SMOKE_MEMORY)} (peak of all its processes 1.9 GiB)",
            remedy="close what takes it; `ps aux --sort -rss | head` names it",
        )


def disk(facts: Facts, against: Measure) -> Iterator[Finding]:
    """Room for the environment and a run, and for Ray."""
    made = facts.environment is not None
    needed = bounds.RUN_DISK + (0 if made else against.disk)
    free = facts.disk.free
    if free < needed:
        yield Finding(
            id="disk.free",
            severity="error",
            what=f"{_gib(free)} are free on the disk, and {_gib(needed)} are needed",
            reason="a climb's records and Ray's session"
            if made
            else "the environment's packages (docker/budgets.yaml), a climb's records and Ray's session",
            remedy="free some space, or put the environments elsewhere: VERLOCK_ENVS",
        )
    elif free < facts.disk.total * bounds.DISK_SHARE:
        yield Finding(
            id="disk.nearly-full",
            severity="warning",
            what=f"the disk is {100 - 100 * free / facts.disk.total:.0f} % full",
            reason="Ray takes no objects on a disk that is 95 % full, and training stops with OutOfDiskError",
            remedy="free some space, or set RAY_local_fs_capacity_threshold=0.99",
        )


def shared_memory(facts: Facts, against: Measure) -> Iterator[Finding]:
    """Shared memory, which a container gets 64 MiB of unless it asks for more."""
    if facts.shm is None or facts.shm.free >= bounds.SHM:
        return
    cuda = against.profile.run.device == "cuda"
    size = f"{against.profile.handoff.shm_gib}g"
    yield Finding(
        id="shm.size",
        severity="error" if cuda else "warning",
        what=f"{facts.shm.free / bounds.MIB:.0f} MiB are free in /dev/shm",
        reason="NCCL and vLLM's workers exchange through it, and end with a bus error where it is full"
        if cuda
        else "Ray puts its object store on the disk instead, which is slower",
        remedy=f"start the container with --shm-size={size} (or --ipc=host)"
        if facts.host.container
        else f"remove files in /dev/shm, or `mount -o remount,size={size} /dev/shm` as root",
    )


def ulimits(facts: Facts, _: Measure) -> Iterator[Finding]:
    """Open files and processes. A soft limit below a good hard one is no fault: Ray raises it itself."""
    soft, hard = facts.ulimits.files_soft, facts.ulimits.files_hard
    highest = min((n for n in (hard, 65536) if n is not None), default=65536)
    if highest < bounds.FILES:
        yield Finding(
            id="limits.files",
            severity="warning",
            what=f"at most {hard} open files (now {soft})",
            reason="Ray opens several for each worker and connection, and fails with EMFILE",
            remedy="raise it: `--ulimit nofile=65536` for a container, /etc/security/limits.conf else",
        )
    # macOS counts processes alone, and its default of 2666 is plenty.
    processes = facts.ulimits.processes_soft if facts.host.system == "linux" else None
    if processes is not None and processes < bounds.PROCESSES:
        yield Finding(
            id="limits.processes",
            severity="warning",
            what=f"at most {processes} processes and threads",
            reason="Ray's threads count too; a worker then fails with `Resource temporarily unavailable`",
            remedy=f"raise it: `ulimit -u {bounds.PROCESSES}`, or `--ulimit nproc=` for a container",
        )


def leftovers(facts: Facts, _: Measure) -> Iterator[Finding]:
    """Processes and folders of climbs that were killed."""
    left = facts.leftovers
    if left.processes or left.ray_folders:
        yield Finding(
            id="leftovers",
            severity="warning",
            what=f"{left.processes} processes and {left.ray_folders} Ray folders of killed climbs",
            reason="they hold memory, ports and disk",
            remedy="`verlock doctor --fix` ends and removes them; so does the next climb",
        )


def _gib(size: float) -> str:
    return f"{size / bounds.GIB:.1f} GiB"
