"""Where a climb runs: on the GPU that its profile is for, on another one, or rehearsed on the CPU.

What is looked at (``nvidia-smi``) and what follows from it are apart, so that the decision for any machine
can be tried on this one.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

from harness.adapt.settings import Device
from harness.errors import WrongMachineError
from harness.profiles.model import Profile

_QUERY = ("nvidia-smi", "--query-gpu=name,compute_cap", "--format=csv,noheader")
_COMPILES = "use_torch_compile"


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One card. ``capability`` as NVIDIA writes it: ``6.1``."""

    name: str
    capability: str

    @property
    def title(self) -> str:
        """The card and its architecture: ``Tesla P40 (sm_61)``."""
        return f"{self.name} (sm_{self.capability.replace('.', '')})"


@dataclass(frozen=True, kw_only=True)
class Sight:
    """What ``nvidia-smi`` shows. ``reason`` says why there is no card."""

    gpus: tuple[Gpu, ...] = ()
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where this climb runs, and what it therefore cannot say."""

    device: Device = "cpu"
    rehearsal: bool = False
    """On a CPU under the contract of a profile, enforced."""
    gpu: str | None = None
    """The card that trains."""
    foreign: bool = False
    """The card is of another kind than the profile's."""


HERE = Place()


def parse(text: str) -> tuple[Gpu, ...]:
    """The cards in the answer of ``nvidia-smi``: a line a card, name and compute capability."""
    rows = [line.rsplit(",", 1) for line in text.splitlines() if "," in line]
    return tuple(Gpu(name=name.strip(), capability=capability.strip()) for name, capability in rows)


def look() -> Sight:
    """Ask ``nvidia-smi``. Torch is not asked: on the host it is not installed."""
    try:
        done = subprocess.run(_QUERY, capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Sight(reason=f"nvidia-smi cannot be run: {getattr(error, 'strerror', None) or error}")
    if done.returncode:
        said = (done.stdout + done.stderr).strip().splitlines()
        return Sight(reason=f"nvidia-smi says: {said[0] if said else f'exit code {done.returncode}'}")
    cards = parse(done.stdout)
    return Sight(gpus=cards, reason="" if cards else "nvidia-smi lists no card")


def decide(profile: Profile, sight: Sight, *, rehearse: bool) -> Place:
    """The place for this profile on such a machine.

    :raises WrongMachineError: when it needs a GPU, there is none, and no rehearsal was asked for.
    """
    if rehearse or profile.run.device != "cuda":
        return Place(rehearsal=rehearse)
    wanted = profile.hardware.compute_capability
    fitting = next((gpu for gpu in sight.gpus if gpu.capability == wanted), None)
    gpu = fitting or next(iter(sight.gpus), None)
    if gpu is None:
        raise WrongMachineError(
            f"profile {profile.name} trains on a GPU of compute capability {wanted}, and there is none here",
            why=sight.reason or None,
            todo=f"rehearse it on the CPU, under its own lock and contract: nox -s smoke-{profile.short} -- "
            "--rehearse; or climb the cpu profile: nox -s smoke-cpu",
        )
    return Place(device="cuda", gpu=gpu.title, foreign=fitting is None)


def title(profile: Profile, place: Place) -> str | None:
    """One line for people where the place is not the profile's own; else none."""
    if place.rehearsal:
        return f"REHEARSAL on the CPU under {profile.name}'s contract"
    if place.foreign:
        return f"on {place.gpu}, which is not {profile.name}'s card, under {profile.name}'s contract"
    return None


def unverified(profile: Profile, place: Place, rollout: str) -> tuple[str, ...]:
    """What this climb says nothing about, whatever it shows; empty on the profile's own hardware."""
    return tuple(_unverified(profile, place, rollout))


def _unverified(profile: Profile, place: Place, rollout: str) -> Iterator[str]:
    cuda = profile.run.device == "cuda"
    if profile.run.rollout not in {"hf", rollout}:
        yield f"{_written(profile.run.rollout)}: the rollout was {rollout}"
    if place.foreign:
        yield (
            f"the card: {place.gpu} has other kernels, limits and speed than sm_"
            f"{str(profile.hardware.compute_capability).replace('.', '')}"
        )
    if not cuda or place.device == "cuda":
        return
    capability = str(profile.hardware.compute_capability).replace(".", "")
    yield f"CUDA kernels: none of sm_{capability} was run, nor its driver, memory or speed"
    yield "NCCL: processes talked through gloo"
    if profile.numerics.dtype != "float32":
        yield f"{profile.numerics.dtype} arithmetic: the CPU computed in float32"
    if _compiles(profile, on_cpu=False) and not _compiles(profile, on_cpu=True):
        yield "torch.compile: modules ran as they are"


def _written(rollout: str) -> str:
    return {"vllm": "vLLM"}.get(rollout, rollout)


def _compiles(profile: Profile, *, on_cpu: bool) -> bool:
    chosen = profile.overrides(rehearse=on_cpu)
    return any(value is True for key, value in chosen.items() if key.endswith(_COMPILES))
