"""What is known about packages and cards beside what the wheels hold: floors, ceilings, who uses what."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError

from harness.errors import AuditError, Problem
from harness.profiles import Profile

HALF = 0.5
"""Below this a library whose kernels are all needed counts as not made for the card. Measured on sm_61: 1.00
in libtorch_cuda.so of torch 2.7.1, 0.00 in that of 2.8.0."""
FILE = Path(__file__).with_name("limits.yaml")

Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
Capability = Annotated[str, StringConstraints(pattern=r"^\d+\.\d$")]
Version = Annotated[str, StringConstraints(pattern=r"^\d+(\.\d+)*$")]
_VERSION = re.compile(r"\d+(\.\d+)*", re.ASCII)
UsedBy = Literal["always", "nothing", "rollout-vllm", "compile", "flash-attention"]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class LibraryUse(_Model):
    """A library whose use differs from its package's."""

    name: Text
    """File name, with shell wildcards."""
    used_by: UsedBy
    reason: Text


class PackageUse(_Model):
    """A package that is read, and what of a profile uses it."""

    name: Text
    """Package name, with shell wildcards."""
    used_by: UsedBy
    reason: Text
    kernels: Literal["all", "some"] = "all"
    """Whether the card needs all of a library's containers, or the library picks those made for it."""
    libraries: tuple[LibraryUse, ...] = ()
    without_code: dict[Text, Text] = {}
    """Large libraries that are not fetched, with the reason."""


class Floor(_Model):
    """The oldest card that a package works on, whatever its wheel holds."""

    package: Text
    from_version: Version | None = None
    """None: from the first."""
    capability: Capability
    used_by: UsedBy
    reason: Text
    evidence: Text


class Cuda(_Model):
    """A CUDA release series."""

    series: Version
    driver: Version
    """Oldest driver."""
    capability: Capability
    """Oldest card that its compiler makes code for."""
    evidence: Text


class DriverBranch(_Model):
    """The newest driver branch for cards below a compute capability."""

    below: Capability
    last: Version
    evidence: Text


class LastGood(_Model):
    """What to take instead, for cards below a compute capability."""

    below: Capability
    package: Text
    advice: Text
    evidence: Text


class Limits(_Model):
    """The whole file."""

    packages: tuple[PackageUse, ...]
    floors: tuple[Floor, ...]
    cuda: tuple[Cuda, ...]
    drivers: tuple[DriverBranch, ...]
    last_good: tuple[LastGood, ...]

    def package(self, name: str) -> PackageUse | None:
        """The first entry that a package's name fits."""
        return next((entry for entry in self.packages if fnmatch(name, entry.name)), None)

    def use(self, package: str, library: str) -> tuple[UsedBy, str]:
        """What uses a library, and why that is believed; a package that nobody listed is used by nothing."""
        entry = self.package(package)
        if entry is None:
            return "nothing", "no entry in harness/build/audit/limits.yaml says that a run calls it"
        base = library.rpartition("/")[2]
        for exception in entry.libraries:
            if fnmatch(base, exception.name):
                return exception.used_by, exception.reason
        return entry.used_by, entry.reason

    def instead(self, package: str, architecture: int) -> str | None:
        """What to take in place of a package that has no code for a card."""
        fitting = [
            entry
            for entry in self.last_good
            if entry.package == package and architecture < number(entry.below)
        ]
        return min(fitting, key=lambda entry: number(entry.below)).advice if fitting else None

    def share(self, package: str) -> float:
        """The share of a library's containers that a card must be able to load; above zero it always is."""
        entry = self.package(package)
        return 0.0 if entry and entry.kernels == "some" else HALF


def number(capability: str) -> int:
    """Compute capability ``6.1`` as the 61 of sm_61."""
    return int(capability.replace(".", ""))


def uses(profile: Profile, by: UsedBy) -> bool:
    """Whether a run of the profile, on its own hardware, calls what is ``used_by``."""
    if by == "rollout-vllm":
        return profile.run.rollout == "vllm"
    if by == "flash-attention":
        return profile.numerics.attention == "flash_attention_2"
    if by == "compile":
        return any(
            key.endswith(".use_torch_compile") and value is True for key, value in profile.overrides().items()
        )
    return by == "always"


def is_version(text: str | None) -> bool:
    """Whether it can be compared: dotted numbers, as of a driver. From other words nothing follows."""
    return text is not None and _VERSION.fullmatch(text) is not None


def older(version: str, than: str) -> bool:
    """Compare dotted numbers: a driver's, or a release's."""
    return _numbers(version) < _numbers(than)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.partition("+")[0].split(".") if part.isdigit())


@cache
def load(path: Path = FILE) -> Limits:
    """Read and check the file.

    Raises:
        AuditError: with every place where it does not fit its model.
    """
    try:
        return Limits.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except ValidationError as error:
        raise AuditError(*_problems(path, error.errors())) from None
    except (OSError, yaml.YAMLError) as error:
        raise AuditError("cannot be read", where=path.name, why=str(error)) from None


def _problems(path: Path, errors: Iterable[object]) -> list[Problem]:
    found: list[Problem] = []
    for error in errors:
        if isinstance(error, dict):
            where = ".".join(str(part) for part in error["loc"])
            found.append(Problem(what=str(error["msg"]), where=f"{path.name}:{where}"))
    return found
