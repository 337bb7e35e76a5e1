"""``manifest.json``: what a bundle holds, what was proven of it, and what was not."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from harness.evidence.model import Status

SCHEMA_VERSION: Final = 1
Sha = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Digest = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]


class Part(BaseModel):
    """Frozen and closed, like all that others read."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class Archive(Part):
    """The OCI archive in the bundle."""

    file: str
    sha256: Sha
    bytes: Annotated[int, Field(gt=0)]


class ImageFacts(Part):
    """The image, by every name that an engine may have for it."""

    name: str
    """What `docker load` calls it; for people: nothing is started by it."""
    platform: str
    manifest: Digest
    config: Digest
    """What Docker calls the image's ID, unless it keeps images in containerd's store."""
    base: Digest
    archive: Archive | None
    """None where the image was pushed and the bundle holds only its reference."""
    reference: str
    """REPOSITORY@sha256:... as the job files have it."""
    pushed: bool
    """Whether it was pushed there, and read back."""
    revision: str


class RungVerdict(Part):
    """One rung of the run that proves the image."""

    name: str
    status: Status
    seconds: float | None
    verified: str | None


class Proof(Part):
    """What is known of this digest, and what is not."""

    status: Literal["proven", "unproven"]
    statement: str
    """The verdict in one sentence; an unproven image says so in every job file too."""
    record: str | None
    """The run record in the bundle."""
    run: str | None
    rungs: tuple[RungVerdict, ...]
    verified: tuple[str, ...]
    not_verified: tuple[str, ...]


class Manifest(Part):
    """All of ``manifest.json``."""

    schema_version: Literal[1] = SCHEMA_VERSION
    profile: str
    summary: str
    fingerprint: Digest
    image: ImageFacts
    versions: dict[str, str]
    """python, and torch, verl, ray, transformers (and vllm where it is) as the lock has them."""
    patches: dict[str, str]
    """The patches of verl by name, and what each did in the run that proves the image."""
    proof: Proof
    sbom: str
    jobs: tuple[str, ...]
    parameters: dict[str, JsonValue]
    """What the job files were rendered with."""

    def text(self) -> str:
        """The file."""
        return self.model_dump_json(indent=2) + "\n"
