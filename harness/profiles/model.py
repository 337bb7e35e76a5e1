"""The profile: one frozen model that locks, Dockerfiles, Hydra overrides and checks derive from.

Each judgement in it (an override, a ban, a difference from the other profiles) carries its reason, since
a value whose reason nobody remembers can be neither kept nor changed safely.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, JsonValue, StringConstraints

from harness.errors import WrongMachineError
from harness.profiles.software import LockTarget, Software
from harness.profiles.words import (
    Attention,
    Dtype,
    HydraKey,
    Model,
    Text,
    Variable,
    Version,
)


class Driver(Model):
    """Which GPU drivers the pinned CUDA build runs on."""

    floor: Version
    """Oldest driver that the pinned CUDA build accepts."""
    ceiling: Version | None = None
    """Newest driver branch that still knows the card."""
    reason: Text
    """Where these bounds come from."""


class Hardware(Model):
    """What the machine is. Facts, not wishes."""

    platform: Literal["linux/amd64", "linux/arm64", "macos/arm64"]
    """Where the smoke session runs."""
    container_platform: Literal["linux/amd64", "linux/arm64"]
    """What the image is built for: a Mac's containers are Linux."""
    accelerator: Literal["none", "cuda", "mps"]
    compute_capability: Annotated[str, StringConstraints(pattern=r"^\d+\.\d$")] | None = None
    """CUDA only, as in ``6.1``."""
    memory_gib: Annotated[float, Field(gt=0)]
    """Host memory that may be counted on."""
    device_memory_gib: Annotated[float, Field(gt=0)] | None = None
    """Accelerator memory of its own; none where it shares the host's."""
    shared_memory_per_block_bytes: Annotated[int, Field(gt=0)] | None = None
    """CUDA: the most that one block may have (opt-in limit where the card has one)."""
    native_dtypes: tuple[Dtype, ...]
    """What the hardware computes in at a useful rate, not what software can emulate."""
    driver: Driver | None = None
    cannot: dict[Text, Text] = Field(default_factory=dict)
    """What the accelerator cannot do on verl's path, each with its reason: said by the doctor."""


class Image(Model):
    """What the image starts from."""

    base: Text
    """``bootstrap`` (made here from Debian packages), or a reference ``name:tag@sha256:...``."""
    release: Literal["bookworm"] = "bookworm"
    packages: tuple[Text, ...]
    """Debian packages in the base beside the minimal system."""


class Ban(Model):
    """Something that must not happen, and why."""

    name: Text
    reason: Text


class DtypeBan(Model):
    """A number format that must not appear, and why."""

    name: Dtype
    reason: Text


class AttentionBan(Model):
    """An attention implementation that must not be chosen, and why."""

    name: Attention
    reason: Text


class Forbidden(Model):
    """What the profile rules out."""

    dtypes: tuple[DtypeBan, ...] = ()
    attention: tuple[AttentionBan, ...] = ()
    libraries: tuple[Ban, ...] = ()
    """Package names, with shell wildcards; none may be in a lock of this profile."""
    kernels: tuple[Ban, ...] = ()
    """Kernel compilers that may be installed, where a package asks for them, and must never run."""


class Numerics(Model):
    """The contract that the run is held to."""

    dtype: Literal["float32", "float16", "bfloat16"]
    attention: Attention
    forbidden: Forbidden


class Setting(Model):
    """A value of a Hydra key, and why it is set."""

    value: JsonValue
    reason: Text


class VariableSetting(Model):
    """A value of an environment variable, and why it is set."""

    value: str
    reason: Text


class RunPolicy(Model):
    """How verl is started on this hardware."""

    device: Literal["cpu", "cuda", "mps"]
    rollout: Literal["hf", "vllm"]
    overrides: dict[HydraKey, Setting]
    """Hydra keys of ``main_ppo``; ``+`` where the key is not in verl's own tree."""
    on_cpu: dict[HydraKey, Setting] = Field(default_factory=dict)
    """Laid on top where the run is on a CPU: always, or in a rehearsal of a GPU profile."""
    env: dict[Variable, VariableSetting] = Field(default_factory=dict)


class RecipeEntry(Model):
    """One line of a recipe that people follow, and what became of it here."""

    parameter: Text
    given: Text
    """The value that the recipe gives."""
    outcome: Literal["kept", "mapped", "rejected"]
    keys: tuple[Text, ...] = ()
    """What verl really reads, as set in the run policy: Hydra keys or environment variables."""
    value: JsonValue = None
    reason: Text


class Handoff(Model):
    """Defaults of the job files for the cluster."""

    nodes: Annotated[int, Field(ge=1)]
    gpus_per_node: Annotated[int, Field(ge=0)]
    cpus_per_node: Annotated[int, Field(ge=1)]
    memory_gib_per_node: Annotated[int, Field(ge=1)]
    shm_gib: Annotated[int, Field(ge=1)]
    time_limit: Annotated[str, StringConstraints(pattern=r"^\d{1,3}:[0-5]\d:[0-5]\d$")]
    queue: Text | None = None
    volumes: dict[Text, Text] = Field(default_factory=dict)
    """Path inside the container to what it is for; the host's path is given at hand-off."""


class Profile(Model):
    """One hardware profile."""

    name: Text
    """The file's stem, and ``@VERSION`` for another verl than the profile's own; not written in the file."""
    short: Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+$")]
    """The name that sessions use, as in ``smoke-cpu``."""
    summary: Text
    hardware: Hardware
    software: Software
    image: Image
    numerics: Numerics
    run: RunPolicy
    recipe: tuple[RecipeEntry, ...] = ()
    handoff: Handoff

    @property
    def stem(self) -> str:
        """The name of its file under profiles/."""
        return self.name.partition("@")[0]

    @property
    def home(self) -> str:
        """The folder of its generated files below docker/rendered: ``cpu``, or ``cpu/verl-0.8.0``."""
        return self.name.replace("@", "/verl-")

    def overrides(self, *, rehearse: bool = False) -> dict[str, object]:
        """Hydra key (with its ``+``) to value; with ``rehearse`` as for a run on a CPU."""
        settings = dict(self.run.overrides)
        if rehearse or self.run.device == "cpu":
            settings |= self.run.on_cpu
        return {key: setting.value for key, setting in settings.items()}

    def environment_variables(self) -> dict[str, str]:
        """Environment variables of the run policy."""
        return {name: setting.value for name, setting in self.run.env.items()}

    def target(self, system: str, machine: str) -> LockTarget:
        """The lock target for ``platform.system()`` and ``platform.machine()``.

        :raises WrongMachineError: when no lock of this profile is for such a machine.
        """
        for target in self.software.targets:
            if target.system == system.lower() and machine.lower() in target.machines:
                return target
        known = ", ".join(f"{t.system} {'/'.join(t.machines)}" for t in self.software.targets)
        raise WrongMachineError(
            f"profile {self.name} has no lock for {system.lower()} {machine}",
            why=f"its locks are for {known}",
            todo="use the cpu profile here: nox -s smoke-cpu"
            if system.lower() == "linux"
            else "use smoke-mac on an arm64 Mac, smoke-cpu on Linux",
        )
