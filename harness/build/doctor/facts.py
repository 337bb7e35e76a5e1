"""The facts of a machine, without judgement: gathered here, or read from a file that describes another."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from harness.errors import OverrideError, Problem
from harness.profiles.words import Model, Text

Count = Annotated[int, Field(ge=0)]
_REMEDY = "write one with `verlock doctor --facts-only > FILE`"
Bytes = Count


class Host(Model):
    """The machine and its system."""

    system: Literal["linux", "darwin"]
    machine: Text
    """As ``platform.machine()`` says it."""
    release: Text
    """The kernel's."""
    macos: str | None = None
    glibc: str | None = None
    cpus: Annotated[int, Field(ge=1)]
    """Those that this process may use."""
    container: bool = False
    """Whether this is inside a container."""


class Memory(Model):
    """Host memory."""

    total: Bytes
    available: Bytes
    limit: Bytes | None = None
    """Of the control group; none where it sets no limit."""

    @model_validator(mode="after")
    def _part_of_the_whole(self) -> Self:
        _within("available", self.available, self.total)
        return self


class Space(Model):
    """A file system."""

    total: Bytes
    free: Bytes

    @model_validator(mode="after")
    def _part_of_the_whole(self) -> Self:
        _within("free", self.free, self.total)
        return self


class Ulimits(Model):
    """Soft and hard limits of this process; none is unlimited."""

    files_soft: Count | None
    files_hard: Count | None
    processes_soft: Count | None


class Card(Model):
    """One NVIDIA GPU, as nvidia-smi lists it."""

    name: Text
    capability: Annotated[str, Field(pattern=r"^\d+\.\d$")] | None = None
    """None where the driver is too old to be asked (before 510)."""
    memory_mib: Count
    used_mib: Count = 0


class Nvidia(Model):
    """What there is of NVIDIA's."""

    on_bus: Count = 0
    """GPUs on the PCI bus, whether a driver serves them or not."""
    nodes: Count = 0
    """Device files /dev/nvidia0 and on: what a container is given."""
    smi: bool = False
    """Whether nvidia-smi is installed."""
    silence: str | None = None
    """What it said in place of an answer."""
    driver: str | None = None
    cards: tuple[Card, ...] = ()
    visible: str | None = None
    """CUDA_VISIBLE_DEVICES; none where it is not set."""

    @property
    def told(self) -> bool:
        """Whether anything was said about GPUs: the defaults alone do not say that there is none."""
        return not self.model_fields_set.isdisjoint({"on_bus", "nodes", "cards"})


class Mps(Model):
    """Apple's Metal, as torch sees it."""

    built: bool
    available: bool
    tensor: str | None = None
    """``ok``, or why a product of two small tensors on the device failed; none where it was not tried."""


class Torch(Model):
    """The environment's torch, imported."""

    version: Text
    cuda: str | None = None
    """The CUDA release it was built for."""
    architectures: tuple[str, ...] = ()
    """``torch.cuda.get_arch_list()`` of the build."""
    devices: Count = 0
    mps: Mps


class Environment(Model):
    """The profile's environment, asked through its own Python."""

    python: Text
    packages: dict[Text, Text]
    """Name and version of every distribution."""
    torch: Torch | None = None
    torch_error: str | None = None
    ray: str | None = None
    """Its version, where it can be imported."""
    ray_error: str | None = None


class Engine(Model):
    """A container engine, as ``verlock engine`` judges it."""

    title: Text
    usable: bool
    missing: str | None = None
    remedy: str | None = None


class Leftovers(Model):
    """What killed climbs left behind."""

    processes: Count = 0
    ray_folders: Count = 0


class Facts(Model):
    """Everything that the checks look at."""

    schema_version: Literal[1] = 1
    host: Host
    memory: Memory
    disk: Space
    """Where the repository is: environments and runs go there."""
    shm: Space | None = None
    """Shared memory; none where there is no such thing, as on macOS."""
    ulimits: Ulimits
    nvidia: Nvidia = Nvidia()
    environment: Environment | None = None
    """None where it was not made yet."""
    engines: tuple[Engine, ...] = ()
    leftovers: Leftovers = Leftovers()

    def told(self, key: str) -> bool:
        """Whether the key was given; a default in its place is no fact."""
        return key in self.model_fields_set


def _within(name: str, part: int, whole: int) -> None:
    if part > whole:
        raise ValueError(f"{name} ({part}) is more than total ({whole})")


def load(path: Path) -> Facts:
    """Read a machine's description, as ``verlock doctor --facts-only`` writes it.

    Raises:
        OverrideError: with every place where it does not fit.
    """
    try:
        return Facts.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise OverrideError(*(_problem(path, one) for one in error.errors())) from None
    except OSError as error:
        raise OverrideError(
            "the facts cannot be read", where=str(path), why=error.strerror, todo=_REMEDY
        ) from None


def _problem(path: Path, one: Mapping[str, Any]) -> Problem:
    key = ".".join(map(str, one["loc"]))
    return Problem(
        what=one["msg"].removeprefix("Value error, "),
        where=f"{path}:{key}" if key else str(path),
        why=_reason(one),
        todo=_REMEDY,
    )


def _reason(one: Mapping[str, Any]) -> str:
    match one["type"]:
        case "json_invalid":
            return "a description is one JSON object"
        case "missing":
            return "the checks compare it, and no default would be true"
        case "extra_forbidden":
            return "no check reads such a key: a typing mistake, or a description of another version"
        case _:
            return f"it is {str(one['input'])[:80]!r}" if one["loc"] else "a description is one JSON object"
