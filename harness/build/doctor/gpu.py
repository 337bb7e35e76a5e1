"""Checks of the GPU: there, seen, the right one, with a driver that fits, free. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

from harness.build.audit.fatbin import Code
from harness.build.audit.limits import is_version, number, older
from harness.build.doctor import bounds
from harness.build.doctor.facts import Card, Facts
from harness.build.doctor.finding import Finding, Measure

_CODE = re.compile(r"(sm|compute)_(\d+)([af]?)")
_KINDS: dict[str, Literal["ptx", "sass"]] = {"sm": "sass", "compute": "ptx"}
_SUFFIXES: dict[str, Literal["", "a", "f"]] = {"": "", "a": "a", "f": "f"}


def capability(card: Card) -> str | None:
    """What the driver says, else what a word of the card's name is known for."""
    words = re.findall(r"[A-Z]+\d+[A-Z]*", card.name.upper())
    return card.capability or next((bounds.MODELS[word] for word in words if word in bounds.MODELS), None)


def presence(facts: Facts, against: Measure) -> Iterator[Finding]:
    """Whether there is a GPU, a driver that answers, and nothing that hides it."""
    if against.profile.run.device != "cuda" or not facts.nvidia.told:
        return
    found, short = facts.nvidia, against.profile.short
    if not (found.on_bus or found.nodes or found.cards):
        inside = facts.host.container
        yield Finding(
            id="gpu.absent",
            severity="error",
            what="there is no NVIDIA GPU",
            reason="the container was started without one" if inside else "none is on the PCI bus",
            remedy=("start it with `docker run --gpus all`" if inside else "use a machine with one")
            + f"; or rehearse the profile on this CPU: nox -s smoke-{short} -- --rehearse",
        )
    elif not found.cards:
        told = found.silence or ("nvidia-smi lists no card" if found.smi else "nvidia-smi is not installed")
        yield Finding(
            id="gpu.driver-missing",
            severity="error",
            what="there is a GPU, and no driver that answers for it",
            reason=told,
            remedy=_driver_remedy(against)
            + (" on the host; then `docker run --gpus all`" if facts.host.container else "; then restart"),
        )
    elif found.visible is not None and not _shown(found.visible, len(found.cards)):
        yield Finding(
            id="gpu.hidden",
            severity="error",
            what=f"CUDA_VISIBLE_DEVICES={found.visible!r} hides all {len(found.cards)} GPUs",
            reason="torch and Ray see only what it names",
            remedy="unset CUDA_VISIBLE_DEVICES, or name a GPU that nvidia-smi -L lists",
        )


def driver(facts: Facts, against: Measure) -> Iterator[Finding]:
    """Floor and ceiling of the driver: the pinned CUDA build's, and the card's."""
    version, bound = facts.nvidia.driver, against.profile.hardware.driver
    if version is None or not is_version(version) or against.profile.run.device != "cuda":
        return
    runtime = next((v for n, v in against.locked.items() if n.startswith("nvidia-cuda-runtime")), "")
    series = next((one for one in against.limits.cuda if one.series == runtime.split(".")[0]), None)
    floors = [(bound.floor, bound.reason)] if bound else []
    floors += [(series.driver, series.evidence)] if series else []
    floor, reason = max(floors, key=lambda one: _numbers(one[0]), default=("0", ""))
    if older(version, floor):
        yield Finding(
            id="gpu.driver-floor",
            severity="error",
            what=f"driver {version} is older than {floor}",
            reason=reason,
            remedy=_driver_remedy(against),
        )
    ceilings = [(bound.ceiling, bound.reason)] if bound and bound.ceiling else []
    ceilings += [
        (branch.last, branch.evidence)
        for card in facts.nvidia.cards
        for branch in against.limits.drivers
        if (known := capability(card)) and number(known) < number(branch.below)
    ]
    last, why = min(ceilings, key=lambda one: _numbers(one[0]), default=("", ""))
    if last and _numbers(version)[0] > _numbers(last)[0]:
        yield Finding(
            id="gpu.driver-ceiling",
            severity="error",
            what=f"driver {version} is newer than branch {last}",
            reason=why,
            remedy=f"install a driver of branch {last}",
        )


def card(facts: Facts, against: Measure) -> Iterator[Finding]:
    """Kind, memory and load of the first card that is visible."""
    hardware = against.profile.hardware
    if against.profile.run.device != "cuda" or not facts.nvidia.cards:
        return
    first = facts.nvidia.cards[0]
    have, wanted = capability(first), hardware.compute_capability
    if have and wanted and number(have) != number(wanted):
        lower = number(have) < number(wanted)
        yield Finding(
            id="gpu.capability",
            severity="error" if lower else "warning",
            what=f"{first.name} has compute capability {have}, and {against.profile.name} is for {wanted}",
            reason="kernels of the locked wheels are missing for it"
            if lower
            else "the profile's bans and pins are those of another card; this one can do more",
            remedy="use the profile of this card: `verlock doctor` without --profile chooses it"
            if lower
            else "rehearse the profile's contract on it, and do not take its speed for the profile's",
        )
    needed = (hardware.device_memory_gib or 0) * 1024
    if first.memory_mib < needed:
        yield Finding(
            id="gpu.memory",
            severity="error",
            what=f"{first.name} has {first.memory_mib} MiB, and the profile counts on {needed:.0f}",
            reason="batch sizes and offloading of the profile are chosen for it",
            remedy="see what fits with `verlock plan memory`",
        )
    if first.used_mib > first.memory_mib * bounds.BUSY_SHARE:
        yield Finding(
            id="gpu.busy",
            severity="warning",
            what=f"{first.used_mib} of {first.memory_mib} MiB of {first.name} are in use",
            reason="another process computes on it, and both can run out of memory",
            remedy="nvidia-smi lists the processes; end yours, or name another card in CUDA_VISIBLE_DEVICES",
        )


def torch(facts: Facts, against: Measure) -> Iterator[Finding]:
    """Whether the installed torch has kernels for the card, and sees it."""
    made = facts.environment.torch if facts.environment else None
    if made is None or against.profile.run.device != "cuda" or not facts.nvidia.cards:
        return
    have = capability(facts.nvidia.cards[0])
    codes = [code for name in made.architectures if (code := _code(name))]
    if have and not any(code.runs_on(number(have)) for code in codes):
        advice = against.limits.instead("torch", number(have))
        yield Finding(
            id="gpu.architecture",
            severity="error",
            what=f"torch {made.version} has no kernels for compute capability {have}",
            reason=f"it was built for {' '.join(made.architectures) or 'CPUs alone'}; "
            "a run ends with `no kernel image is available`",
            remedy=f"make the environment from the profile's lock{f'; {advice}' if advice else ''}",
        )
    elif not made.devices and (facts.nvidia.visible is None or _shown(facts.nvidia.visible, 1)):
        yield Finding(
            id="gpu.unseen",
            severity="error",
            what=f"torch {made.version} sees no GPU, and nvidia-smi lists {len(facts.nvidia.cards)}",
            reason=f"its CUDA ({made.cuda or 'none'}) and driver {facts.nvidia.driver} do not meet",
            remedy="check the driver's floor, and that /dev/nvidia-uvm exists (nvidia-modprobe -u)",
        )


def _driver_remedy(against: Measure) -> str:
    bound = against.profile.hardware.driver
    if bound is None:
        return "install NVIDIA's driver"
    until = f", and at most branch {bound.ceiling}" if bound.ceiling else ""
    return f"install driver {bound.floor} or newer{until}"


def _shown(visible: str, count: int) -> bool:
    """Whether CUDA_VISIBLE_DEVICES leaves a card: it is read up to the first entry that is none."""
    first = visible.split(",", maxsplit=1)[0].strip()
    return first.startswith(("GPU-", "MIG-")) or (first.isdigit() and int(first) < count)


def _code(name: str) -> Code | None:
    found = _CODE.fullmatch(name)
    if found is None:
        return None
    return Code(int(found[2]), _KINDS[found[1]], _SUFFIXES[found[3]])


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())
