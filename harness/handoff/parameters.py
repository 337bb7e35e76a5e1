"""What job files are rendered with: the profile's defaults, and what the command line puts in their place."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, Self

from pydantic import Field, JsonValue

from harness.adapt.settings import Settings
from harness.handoff import overrides
from harness.handoff.manifest import Part, Proof
from harness.handoff.reference import Reference
from harness.handoff.words import read
from harness.profiles import Profile

CLAIM = "pvc:"


class Volume(Part):
    """A folder of the cluster, and where the container sees it."""

    target: str
    purpose: str
    source: str
    """A path on each node. Relative: to the folder in which the job is started."""
    claim: str
    """Kubernetes: the claim's name; empty if ``source`` is a path on the node."""
    writable: bool

    @property
    def variable(self) -> str:
        """The environment variable that names another source when a script is started."""
        return "VERLOCK" + re.sub(r"[^A-Z0-9]", "_", self.target.upper())

    @property
    def label(self) -> str:
        """A name that Kubernetes takes."""
        return self.target.strip("/").replace("/", "-")


class Asked(Part):
    """What the command line gives; None leaves the profile's default."""

    name: str | None = None
    nodes: Annotated[int, Field(ge=1)] | None = None
    gpus_per_node: Annotated[int, Field(ge=0)] | None = None
    time_limit: str | None = None
    queue: str | None = None
    volumes: tuple[str, ...] = ()
    """``/data=/lustre/data`` or ``/data=pvc:claim``."""
    overrides: tuple[str, ...] = ()

    @classmethod
    def none(cls) -> Self:
        """Nothing but defaults."""
        return cls()


@dataclass(frozen=True, kw_only=True)
class Identity:
    """The image that the jobs run."""

    reference: Reference
    config: str
    fingerprint: str
    archive: str | None
    """Its file in the bundle, if it is there."""


class Parameters(Part):
    """All that the templates read."""

    name: str
    profile: str
    accelerator: Literal["none", "cuda", "mps"]
    statement: str
    proven: bool
    manifest: str
    config: str
    fingerprint: str
    image: str
    enroot_3: str
    enroot_4: str
    archive: str | None
    platform: str
    ray: str
    nodes: int
    gpus_per_node: int
    ranks_per_node: int
    cpus_per_node: int
    logical_cpus: int | None
    """What Ray is told on a CPU, where verl's bundles ask for more than there are; None: it counts itself."""
    memory_gib_per_node: int
    shm_gib: int
    object_store: int
    """Bytes; Ray keeps objects in /dev/shm, and in slow files where that is too small."""
    time_limit: str
    seconds: int
    queue: str | None
    volumes: tuple[Volume, ...]
    variables: dict[str, str]
    overrides: dict[str, JsonValue]


def gather(
    profile: Profile,
    asked: Asked,
    *,
    identity: Identity,
    proof: Proof,
    ray: str,
    carried: Mapping[str, JsonValue] | None = None,
) -> Parameters:
    """Put the profile, the command line (:func:`harness.handoff.asked.judge`) and the image together."""
    defaults, reference = profile.handoff, identity.reference
    gpus = defaults.gpus_per_node if asked.gpus_per_node is None else asked.gpus_per_node
    nodes = asked.nodes or defaults.nodes
    limit = asked.time_limit or defaults.time_limit
    name = asked.name or f"verlock-{profile.short}"
    ranks = gpus or 1
    on_cpu = {key.lstrip("+"): setting.value for key, setting in profile.run.on_cpu.items()}
    logical = on_cpu.get("ray_kwargs.ray_init.num_cpus") if profile.run.device == "cpu" else None
    hours, minutes, seconds = (int(part) for part in limit.split(":"))
    return Parameters(
        name=name,
        profile=profile.name,
        accelerator=profile.hardware.accelerator,
        statement=proof.statement,
        proven=proof.status == "proven",
        manifest=reference.digest,
        config=identity.config,
        fingerprint=identity.fingerprint,
        image=str(reference),
        enroot_3=reference.enroot_3,
        enroot_4=reference.enroot_4,
        archive=identity.archive,
        platform=profile.hardware.container_platform,
        ray=ray,
        nodes=nodes,
        gpus_per_node=gpus,
        ranks_per_node=ranks,
        cpus_per_node=defaults.cpus_per_node,
        logical_cpus=logical if isinstance(logical, int) else None,
        memory_gib_per_node=defaults.memory_gib_per_node,
        shm_gib=defaults.shm_gib,
        object_store=defaults.shm_gib * 2**30 * 9 // 10,
        time_limit=limit,
        seconds=hours * 3600 + minutes * 60 + seconds,
        queue=asked.queue or defaults.queue,
        volumes=_volumes(profile, asked.volumes),
        variables=profile.environment_variables() | variables(profile),
        overrides=overrides.for_job(
            profile,
            name=name,
            nodes=nodes,
            ranks=ranks,
            asked={**(carried or {}), **read(asked.overrides)},
        ),
    )


def variables(profile: Profile) -> dict[str, str]:
    """What the plug-in is told on the profile's own hardware; each node's container has to have it."""
    device: Literal["cpu", "cuda"] = "cuda" if profile.run.device == "cuda" else "cpu"
    settings = Settings(device=device, rollout_device=device, attention=profile.numerics.attention)
    return settings.environment()


def _volumes(profile: Profile, given: Sequence[str]) -> tuple[Volume, ...]:
    sources = dict(text.split("=", 1) for text in given)
    found = []
    for target, purpose in profile.handoff.volumes.items():
        source = sources.get(target, f".{target}")
        claim = source.removeprefix(CLAIM) if source.startswith(CLAIM) else ""
        default = target not in sources
        found.append(
            Volume(
                target=target,
                purpose=purpose,
                source=f".{target}" if claim else source,
                claim=claim or (f"verlock-{target.strip('/').replace('/', '-')}" if default else ""),
                writable="writable" in purpose,
            )
        )
    return tuple(found)
