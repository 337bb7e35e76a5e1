"""KubeRay's RayJob as far as a hand-off writes one: closed, so that a typo is refused, and not ignored there.

The names and types are those of the API ``ray.io/v1`` and of Kubernetes' core/v1; what is not written is
not in the model.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator
from pydantic.alias_generators import to_camel

from harness.errors import HandoffError, Problem
from harness.handoff.reference import Reference

Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")]
Quantity = Annotated[str, StringConstraints(pattern=r"^[0-9]+(\.[0-9]+)?(m|Ki|Mi|Gi|Ti)?$")]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, alias_generator=to_camel)


class Metadata(_Part):
    """Name, labels and annotations."""

    name: Name
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class Variable(_Part):
    """An environment variable."""

    name: str
    value: str


class Resources(_Part):
    """What a container may use, and what is kept for it."""

    limits: dict[str, Quantity]
    requests: dict[str, Quantity]


class Mount(_Part):
    """A volume's place in a container."""

    name: Name
    mount_path: Annotated[str, StringConstraints(pattern=r"^/")]
    read_only: bool = False


class ContainerSecurity(_Part):
    """Of one container."""

    allow_privilege_escalation: Literal[False]


class Container(_Part):
    """One container; its image is named by digest."""

    name: Name
    image: str
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"]
    security_context: ContainerSecurity | None = None
    env: list[Variable] = []
    resources: Resources
    volume_mounts: list[Mount] = []


class PodSecurity(_Part):
    """Of all containers of a pod."""

    run_as_user: Annotated[int, Field(gt=0)]
    run_as_group: Annotated[int, Field(gt=0)]
    fs_group: Annotated[int, Field(alias="fsGroup", gt=0)]
    run_as_non_root: Literal[True]


class EmptyDir(_Part):
    """Room that ends with the pod."""

    medium: Literal["", "Memory"] = ""
    size_limit: Quantity | None = None


class Claim(_Part):
    """A claim on storage that outlives the pod."""

    claim_name: Name


class HostPath(_Part):
    """A folder of the node."""

    path: Annotated[str, StringConstraints(min_length=1)]


class PodVolume(_Part):
    """One volume of a pod, of exactly one kind."""

    name: Name
    empty_dir: EmptyDir | None = None
    persistent_volume_claim: Claim | None = None
    host_path: HostPath | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if (
            sum(kind is not None for kind in (self.empty_dir, self.persistent_volume_claim, self.host_path))
            != 1
        ):
            raise ValueError("a volume has exactly one of emptyDir, persistentVolumeClaim and hostPath")
        return self


class PodSpec(_Part):
    """A pod."""

    restart_policy: Literal["Never", "OnFailure", "Always"] | None = None
    security_context: PodSecurity | None = None
    containers: Annotated[list[Container], Field(min_length=1)]
    volumes: list[PodVolume] = []

    @model_validator(mode="after")
    def _mounts(self) -> Self:
        known = {volume.name for volume in self.volumes}
        used = {mount.name for container in self.containers for mount in container.volume_mounts}
        if used - known:
            raise ValueError(f"mounts name no volume: {', '.join(sorted(used - known))}")
        return self


class PodTemplate(_Part):
    """What pods are made from."""

    spec: PodSpec


class Head(_Part):
    """The head of the cluster."""

    ray_start_params: dict[str, str]
    template: PodTemplate


class Workers(_Part):
    """The other nodes."""

    group_name: Name
    replicas: Annotated[int, Field(ge=1)]
    min_replicas: Annotated[int, Field(ge=1)]
    max_replicas: Annotated[int, Field(ge=1)]
    ray_start_params: dict[str, str]
    template: PodTemplate


class Cluster(_Part):
    """A Ray cluster."""

    ray_version: str
    head_group_spec: Head
    worker_group_specs: list[Workers] = []


class Spec(_Part):
    """A job and the cluster made for it. There is no ``runtimeEnvYAML``: what runs is in the image."""

    entrypoint: Annotated[str, StringConstraints(min_length=1)]
    submission_mode: Literal["K8sJobMode"]
    shutdown_after_job_finishes: bool
    ttl_seconds_after_finished: Annotated[int, Field(ge=0)]
    active_deadline_seconds: Annotated[int, Field(gt=0)]
    backoff_limit: Annotated[int, Field(ge=0)]
    submitter_pod_template: PodTemplate
    ray_cluster_spec: Cluster


class RayJob(_Part):
    """The document."""

    api_version: Literal["ray.io/v1"]
    kind: Literal["RayJob"]
    metadata: Metadata
    spec: Spec

    def pods(self) -> dict[str, PodSpec]:
        """Every pod of the job by its place in the document."""
        cluster = self.spec.ray_cluster_spec
        return {
            "spec.submitterPodTemplate": self.spec.submitter_pod_template.spec,
            "spec.rayClusterSpec.headGroupSpec": cluster.head_group_spec.template.spec,
        } | {
            f"spec.rayClusterSpec.workerGroupSpecs.{number}": group.template.spec
            for number, group in enumerate(cluster.worker_group_specs)
        }


def check(text: str, *, ray: str, image: str, file: str = "rayjob.yaml") -> RayJob:
    """Read the document and hold it to what a hand-off promises.

    Raises:
        HandoffError: with every key that is unknown, missing or of the wrong type; else with every image
            that is not ``image`` by digest, and a Ray version that is not the lock's.
    """
    try:
        job = RayJob.model_validate(yaml.safe_load(text))
    except yaml.YAMLError as error:
        raise HandoffError("the RayJob is not YAML", where=file, why=str(error)) from None
    except ValidationError as error:
        raise HandoffError(
            *(
                Problem(what=e["msg"], where=f"{file}:{'.'.join(map(str, e['loc']))}", todo="see ray.io/v1")
                for e in error.errors()
            )
        ) from None
    problems = [
        Problem(
            what=f"{found} is not the image that is handed on",
            where=f"{file}:{place}",
            why=f"head, workers and submitter have to run {image}",
        )
        for place, pod in job.pods().items()
        for found in (str(Reference.parse(container.image)) for container in pod.containers)
        if found != image
    ]
    if job.spec.ray_cluster_spec.ray_version != ray:
        problems.append(
            Problem(
                what=f"rayVersion is {job.spec.ray_cluster_spec.ray_version}, the lock has {ray}",
                where=f"{file}:spec.rayClusterSpec.rayVersion",
            )
        )
    if problems:
        raise HandoffError(*problems)
    return job
