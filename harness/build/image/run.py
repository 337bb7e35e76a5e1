"""A command in a profile's image, through the Docker SDK: as the cluster would run it, with less room.

The container has no network, a root that cannot be written to, and one folder of this machine: where run
records go. What fails under these conditions would have failed on the cluster, only later.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.build.engine import Engine
from harness.build.image import witness
from harness.build.image.make import reference
from harness.console import Output
from harness.errors import EngineError, ImageError, ToolMissingError, VerlockError
from harness.profiles import Profile

if TYPE_CHECKING:
    from docker.models.containers import Container

    import docker

RUNS = "/runs"
# Named in the image; anybody else is unknown there, which Ray survives if USER is set.
_OWN = 1000
# A rung may be silent for minutes while it compiles; the SDK's default of one would end the run.
_PATIENCE_SECONDS = 24 * 3600


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a container ended."""

    exit_code: int
    out_of_memory: bool


def run(
    profile: Profile, command: Sequence[str], runs: Path, *, engine: Engine, gpus: bool, output: Output
) -> Ended:
    """Run ``verlock`` with ``command`` in the image of ``profile``; its lines are shown as they come.

    Args:
        profile: whose image, and whose limits of memory, shared memory and cores.
        command: the arguments of ``verlock`` inside.
        runs: the folder for run records; it is seen as ``/runs`` inside.
        engine: which daemon.
        gpus: hand all GPUs to the container.
        output: where the lines go.

    Raises:
        ImageError: the image was not built yet, or the engine's is not the one in ``dist/``.
        EngineError: the daemon cannot start it.
    """
    if engine.kind != "docker":
        raise EngineError("running in an image needs Docker", where=engine.title(), todo="install docker.io")
    client = _client()
    runs.mkdir(parents=True, exist_ok=True)
    user = os.getuid()
    if user == 0:  # never root inside
        user = _OWN
        os.chown(runs, _OWN, _OWN)
    from docker.errors import APIError, DockerException, ImageNotFound

    try:
        # run() would try to pull an image that is not there, and say that there is no registry.
        image = witness.known(profile, str(client.images.get(reference(profile)).id))
        earlier = witness.records(runs)
        options = limits(profile, cores=int(client.info()["NCPU"]), gpus=gpus)
        container = client.containers.run(
            reference(profile),
            list(command),
            detach=True,
            user=f"{user}:{os.getgid() or _OWN}",
            environment={"USER": "verlock"},
            network_mode="none",
            read_only=True,
            tmpfs={"/tmp": "rw,exec,mode=1777"},  # noqa: S108 - the container's own
            volumes={str(runs.resolve()): {"bind": RUNS, "mode": "rw"}},
            **options,
        )
        ended = _follow(container, output)
        witness.note(image, witness.records(runs) - earlier)
        return ended
    except ImageNotFound:
        raise ImageError(
            f"the image {reference(profile)} is not there", todo=f"build it: nox -s build-{profile.short}"
        ) from None
    except (APIError, DockerException) as error:
        raise _refused(error) from None


def limits(profile: Profile, *, cores: int, gpus: bool) -> dict[str, Any]:
    """The profile's limits as the SDK takes them; no more cores than the daemon has."""
    from docker.types import DeviceRequest

    gib = 2**30
    bounds: dict[str, Any] = {
        "mem_limit": int(profile.hardware.memory_gib * gib),
        "shm_size": int(profile.handoff.shm_gib * gib),
        "nano_cpus": min(profile.handoff.cpus_per_node, cores) * 10**9,
    }
    if gpus:
        bounds["device_requests"] = [DeviceRequest(count=-1, capabilities=[["gpu"]])]
    return bounds


def _follow(container: Container, output: Output) -> Ended:
    """Show what the container says until it ends; it is removed whatever happens."""
    try:
        rest = b""
        for chunk in container.logs(stream=True, follow=True):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                output.line(line.decode(errors="replace"))
        if rest:
            output.line(rest.decode(errors="replace"))
        code = int(container.wait()["StatusCode"])
        container.reload()
        return Ended(exit_code=code, out_of_memory=bool(container.attrs["State"]["OOMKilled"]))
    finally:
        container.remove(force=True)


def _client() -> docker.DockerClient:
    # Without the SDK the repository's folder docker/ is an empty package of that name.
    try:
        from docker import from_env
    except ImportError:
        raise ToolMissingError(
            "the Docker SDK is not installed", todo="pip install 'verlock[host]'"
        ) from None
    return from_env(timeout=_PATIENCE_SECONDS)


def _refused(error: Exception) -> VerlockError:
    text = str(getattr(error, "explanation", None) or error)
    todo = "verlock engine says what is here"
    if "could not select device driver" in text or "nvidia" in text.lower():
        todo = "install the NVIDIA Container Toolkit on this machine"
    return EngineError("the engine could not run the container", why=text[:500], todo=todo)
