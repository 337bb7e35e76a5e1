"""What a profile installs: pins, the locks that they become, and other releases of verl."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from harness.profiles.words import Digest, FileName, Instant, Machine, Model, Pin, System, Text, Url, Version


class Torch(Model):
    """Which torch a lock target takes, and how a wheel of it is recognised."""

    version: Pin
    hashes: tuple[Digest, ...] = ()
    """For builds that are not on the default index: the sha256 of each wheel that may be installed."""
    index: Url | None = None
    """Public index to take torch, and nothing else, from when no local folder offers the wheel."""


class LockTarget(Model):
    """One lock file: one system, one platform tag, one torch."""

    name: Literal["linux", "macos"]
    file: FileName
    dev_file: FileName | None = None
    """Lock of the development tools that goes on top, where tests run on this target."""
    system: System
    machines: tuple[Machine, ...]
    """Machines that the lock installs on. Those beyond the first must resolve to the same pins."""
    python_platform: Text
    """uv's name for the platform that is resolved for."""
    same_pins_on: tuple[Text, ...] = ()
    """Further uv platforms whose resolution must give the same pins."""
    torch: Torch


class Release(Model):
    """Another verl that a profile has a lock for, and what else is then another."""

    verl: Pin
    transformers: Pin
    ray: Pin | None = None
    tensordict: Pin | None = None
    without: tuple[Text, ...] = ()
    """Packages of ``requirements`` that this verl does not import."""
    requirements: tuple[Text, ...] = ()
    """Requirements in addition to the profile's."""
    reason: Text
    """Why these pins: what of them this verl cannot do without."""


class Software(Model):
    """What is installed, to the last byte."""

    python: Annotated[str, StringConstraints(pattern=r"^3\.\d+$")]
    verl: Pin
    verl_extras: tuple[Text, ...] = ()
    transformers: Pin
    ray: Pin
    tensordict: Pin
    requirements: tuple[Text, ...]
    """Requirements beside the pins above, with floors; the date cut-off makes them one version."""
    source_only: dict[Text, Text] = Field(default_factory=dict)
    """Packages without any wheel, with the reason; all others must come as wheels."""
    build_requirements: tuple[Text, ...] = ()
    """What builds them; locked with hashes into ``build.lock``."""
    installer: Text
    """The uv that installs into the image; locked with hashes into ``installer.lock``."""
    exclude_newer: Instant
    """Nothing that was uploaded later is seen, so the same lock comes out on any day."""
    exclude_newer_tools: Instant | None = None
    """The same for the development tools, which may be newer than what they test."""
    macos_floor: Version | None = None
    """Oldest macOS that the wheels are chosen for."""
    also: tuple[Release, ...] = ()
    """Other releases of verl, each with a lock of its own: ``--verl VERSION``."""
    differs: dict[Text, Text] = Field(default_factory=dict)
    """Packages whose version is not that of the other profiles, with the reason."""
    targets: tuple[LockTarget, ...]
