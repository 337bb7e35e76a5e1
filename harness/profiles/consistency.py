"""What a profile may not say in two places at once. Pure; each finding names the key at fault."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch

from harness.profiles.model import Profile
from harness.profiles.releases import package


@dataclass(frozen=True, kw_only=True)
class Contradiction:
    """Two statements that cannot both hold; ``path`` leads to the one to look at first."""

    path: tuple[str | int, ...]
    what: str
    why: str | None = None
    todo: str | None = None


def contradictions(profile: Profile) -> list[Contradiction]:
    """All of them."""
    return [*_hardware(profile), *_numerics(profile), *_run(profile), *_software(profile), *_recipe(profile)]


def _hardware(profile: Profile) -> Iterator[Contradiction]:
    hardware = profile.hardware
    if hardware.accelerator == "cuda":
        for key in ("compute_capability", "device_memory_gib", "shared_memory_per_block_bytes", "driver"):
            if getattr(hardware, key) is None:
                yield Contradiction(
                    path=("hardware", key), what=f"a CUDA profile needs {key}", todo=f"add hardware.{key}"
                )
    elif hardware.compute_capability is not None:
        yield Contradiction(
            path=("hardware", "compute_capability"),
            what="only a CUDA profile has a compute capability",
            todo="remove the key",
        )


def _numerics(profile: Profile) -> Iterator[Contradiction]:
    numerics, native = profile.numerics, profile.hardware.native_dtypes
    if numerics.dtype not in native:
        yield Contradiction(
            path=("numerics", "dtype"),
            what=f"{numerics.dtype} is not native to this hardware",
            why=f"native are {', '.join(native)}",
        )
    if numerics.dtype in {ban.name for ban in numerics.forbidden.dtypes}:
        yield Contradiction(
            path=("numerics", "dtype"), what=f"{numerics.dtype} is forbidden by this profile itself"
        )
    if numerics.attention in {ban.name for ban in numerics.forbidden.attention}:
        yield Contradiction(
            path=("numerics", "attention"), what=f"{numerics.attention} is forbidden by this profile itself"
        )


def _run(profile: Profile) -> Iterator[Contradiction]:
    run = profile.run
    possible = {"none": {"cpu"}, "cuda": {"cpu", "cuda"}, "mps": {"cpu", "mps"}}[profile.hardware.accelerator]
    if run.device not in possible:
        yield Contradiction(
            path=("run", "device"),
            what=f"a machine with accelerator {profile.hardware.accelerator} has no {run.device}",
        )
    for ban in profile.numerics.forbidden.libraries:
        if run.rollout == "vllm" and fnmatch("vllm", ban.name):
            yield Contradiction(
                path=("run", "rollout"),
                what="vllm is forbidden by this profile itself",
                why=ban.reason,
                todo="use hf",
            )
    named = run.overrides.get("actor_rollout_ref.rollout.name")
    if named is not None and named.value != run.rollout:
        path = ("run", "overrides", "actor_rollout_ref.rollout.name")
        yield Contradiction(
            path=path, what=f"rollout {named.value!r} differs from run.rollout, which is {run.rollout!r}"
        )
    for group in ("overrides", "on_cpu"):
        yield from _twice(group, list(getattr(run, group)))


def _twice(group: str, keys: list[str]) -> Iterator[Contradiction]:
    bare: dict[str, str] = {}
    for key in keys:
        other = bare.setdefault(key.lstrip("+"), key)
        if other != key:
            yield Contradiction(
                path=("run", group, key), what=f"the same key as {other}", todo="keep one of them"
            )


def _software(profile: Profile) -> Iterator[Contradiction]:
    software = profile.software
    if not software.targets:
        yield Contradiction(path=("software", "targets"), what="a profile needs at least one lock target")
    files = [target.file for target in software.targets] + [
        target.dev_file for target in software.targets if target.dev_file
    ]
    for number, target in enumerate(software.targets):
        path = ("software", "targets", number)
        if files.count(target.file) > 1:
            yield Contradiction(path=(*path, "file"), what=f"two locks are named {target.file}")
        if "+" in target.torch.version and not target.torch.hashes:
            yield Contradiction(
                path=(*path, "torch", "version"),
                what="a local build of torch needs its hashes in the profile",
            )
        if target.torch.index and not target.torch.hashes:
            yield Contradiction(
                path=(*path, "torch", "index"),
                what="a wheel from another index needs its hashes in the profile",
            )
        if target.system == "darwin" and software.macos_floor is None:
            yield Contradiction(
                path=("software", "macos_floor"),
                what="a macOS lock needs the oldest macOS to choose wheels for",
            )
    yield from _releases(profile)
    if software.source_only and not software.build_requirements:
        yield Contradiction(
            path=("software", "build_requirements"), what="packages without a wheel need a pinned build"
        )


def _releases(profile: Profile) -> Iterator[Contradiction]:
    software = profile.software
    seen = [software.verl]
    packages = [package(one) for one in software.requirements]
    for number, release in enumerate(software.also):
        path = ("software", "also", number)
        if release.verl in seen:
            yield Contradiction(path=(*path, "verl"), what=f"verl {release.verl} is named twice")
        seen.append(release.verl)
        for name in release.without:
            if package(name) not in packages:
                yield Contradiction(
                    path=(*path, "without"),
                    what=f"{name} is none of software.requirements",
                    todo="remove it: there is nothing to leave out",
                )


def _recipe(profile: Profile) -> Iterator[Contradiction]:
    given: dict[str, object] = {key.lstrip("+"): value for key, value in profile.overrides().items()}
    given |= profile.environment_variables()
    for number, entry in enumerate(profile.recipe):
        path = ("recipe", number, "keys")
        if (entry.outcome == "rejected") == bool(entry.keys):
            yield Contradiction(
                path=path, what=f"{entry.parameter}: a rejected entry has no keys, any other has some"
            )
        for key in entry.keys:
            if key.lstrip("+") not in given:
                yield Contradiction(
                    path=path,
                    what=f"{key} is not set by the run policy",
                    todo="set it in run.overrides or run.env",
                )
            elif given[key.lstrip("+")] != entry.value:
                yield Contradiction(
                    path=path,
                    what=f"{key} is {given[key.lstrip('+')]!r} in the run policy, not {entry.value!r}",
                )
