"""A command in a profile's image, through the Docker SDK: as the cluster would run it, with less room.

The container has no network, a root that cannot be written to, and one folder of this machine that can:
where run records go. What fails under these conditions would have failed on the cluster, only later.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.build.engine import Engine
from harness.build.image import built, witness
from harness.console import Output
from harness.errors import EngineError, ToolMissingError, VerlockError
from harness.profiles import Profile

if TYPE_CHECKING:
    from docker.models.containers import Container

    import docker

RUNS = "/runs"
# Named in the image; anybody else is unknown there, which Ray survives if USER is set.
_OWN = 1000
# A rung may be silent for minutes while it compiles; the SDK's default of one would end the run.
_PATIENCE_SECONDS = 24 * 3600
Speak = Callable[[bytes | None, bytes | None], None]
"""Takes a piece of standard output, and one of standard error, as they come."""


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a container ended."""

    exit_code: int
    out_of_memory: bool


@dataclass(frozen=True, kw_only=True)
class Room:
    """What of this machine is in the container, beside the folder of run records."""

    runs: str = RUNS
    """Where the folder of run records is inside."""
    inputs: tuple[Path, ...] = ()
    """Files and folders that can be read, under their own paths."""
    variables: Mapping[str, str] = field(default_factory=dict)


def run(
    profile: Profile,
    command: Sequence[str],
    runs: Path,
    *,
    engine: Engine,
    gpus: bool,
    output: Output,
    room: Room | None = None,
    speak: Speak | None = None,
) -> Ended:
    """Run ``verlock`` with ``command`` in the image of ``profile``; what it says is shown as it comes.

    Args:
        profile: whose image, and whose limits of memory, shared memory and cores.
        command: the arguments of ``verlock`` inside.
        runs: the folder for run records; afterwards they belong to whom it belongs to.
        engine: which daemon.
        gpus: hand all GPUs to the container.
        output: where the lines go.
        room: what else is inside.
        speak: takes what is said in place of ``output``.

    Raises:
        ImageError: the image was not built yet, or is gone.
        EnvironmentDiffersError: it was built from something else than this checkout holds.
        EngineError: the daemon cannot start it.
    """
    if engine.kind != "docker":
        raise EngineError("running in an image needs Docker", where=engine.title(), todo="install docker.io")
    image = built.read(profile)
    built.check(image)
    client = _client()
    from docker.errors import APIError, DockerException

    runs.mkdir(parents=True, exist_ok=True)
    room = room or Room()
    try:
        with contextlib.closing(client), _owned(runs) as user:
            container = client.containers.create(
                built.find(client, engine, image, output),
                list(command),
                user=user,
                environment={"USER": "verlock", **room.variables},
                network_mode="none",
                read_only=True,
                **_places(runs, room),
                **limits(profile, cores=int(client.info()["NCPU"]), gpus=gpus),
            )
            earlier = witness.records(runs)
            ended = _follow(container, speak or _lines(output))
            witness.note(image, witness.records(runs) - earlier)
            return ended
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


def _places(runs: Path, room: Room) -> dict[str, Any]:
    """The container's folders. Pure."""
    volumes = {str(path): {"bind": str(path), "mode": "ro"} for path in room.inputs}
    volumes[str(runs.resolve())] = {"bind": room.runs, "mode": "rw"}
    # The engine mounts a folder before what lies in it. The image has a /root, closed to the image's user.
    spaces = {"/tmp": "rw,exec,mode=1777"}  # noqa: S108 - the container's own
    if any(place["bind"].startswith("/root/") for place in volumes.values()):
        spaces["/root"] = "rw,mode=755,size=1m"
    return {"volumes": volumes, "tmpfs": spaces}


@contextlib.contextmanager
def _owned(runs: Path) -> Iterator[str]:
    """User and group for the container, never root; what it leaves in ``runs`` is its owner's afterwards."""
    if os.getuid() != 0:
        yield f"{os.getuid()}:{os.getgid()}"
        return
    owner = runs.stat()
    known = {path.name for path in runs.iterdir()}
    os.chown(runs, _OWN, _OWN)
    try:
        yield f"{_OWN}:{_OWN}"
    finally:
        os.chown(runs, owner.st_uid, owner.st_gid)
        for path in (path for path in runs.iterdir() if path.name not in known or path.is_symlink()):
            for one in (path, *(path.rglob("*") if path.is_dir() and not path.is_symlink() else ())):
                os.chown(one, owner.st_uid, owner.st_gid, follow_symlinks=False)


def _follow(container: Container, speak: Speak) -> Ended:
    """Pass on what the container says until it ends; it is removed whatever happens."""
    try:
        said = container.attach(stream=True, demux=True)
        container.start()
        try:
            for out, err in said:
                speak(out, err)
        except KeyboardInterrupt:
            # The climb ends its processes and completes its record.
            container.kill("SIGINT")
        code = int(container.wait(timeout=_PATIENCE_SECONDS)["StatusCode"])
        container.reload()
        return Ended(exit_code=code, out_of_memory=bool(container.attrs["State"]["OOMKilled"]))
    finally:
        container.remove(force=True)


def _lines(output: Output) -> Speak:
    """Show whole lines of both streams."""
    rests = [b"", b""]

    def speak(*pieces: bytes | None) -> None:
        for number, piece in enumerate(pieces):
            *lines, rests[number] = (rests[number] + (piece or b"")).split(b"\n")
            for line in lines:
                output.line(line.decode(errors="replace"))

    return speak


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
