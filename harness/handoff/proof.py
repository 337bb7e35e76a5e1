"""Whether an image was proven: by a passed run whose record names this digest, and by nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from harness.errors import HandoffError, RecordError
from harness.evidence.model import Image, Run, load
from harness.handoff.manifest import Proof, RungVerdict
from harness.handoff.words import bare, read
from harness.ladder.options import ORDER
from harness.profiles import Profile

RECORD = "run.json"
NEEDED = "ppo"
"""The rung that a proof has to reach: verl's own trainer, with a real rollout."""


def find(profile: Profile, image: Image, fingerprint: str, runs: Path) -> Run:
    """The newest run below ``runs`` that proves the image.

    Raises:
        HandoffError: there is none; the message says what the nearest ones lack.
    """
    near = []
    for path in sorted(runs.glob("*/run.json"), reverse=True):
        if path.parent.is_symlink():
            continue
        try:
            run = load(path)
        except RecordError:  # of another schema, or cut off: it proves nothing
            continue
        lacks = lacking(profile, image, fingerprint, run)
        if lacks is None:
            return run
        if run.profile == profile.name:
            near.append(f"{run.id} {lacks}")
    raise HandoffError(
        f"no run below {runs} proves the image {image.manifest}",
        where=str(runs),
        why="; ".join(near[:3]) or f"there is no run of {profile.name}",
        todo=f"prove it: nox -s smoke-{profile.short} -- --image; or give --unproven, and it says so",
    )


def lacking(profile: Profile, image: Image, fingerprint: str, run: Run) -> str | None:
    """Why ``run`` does not prove the image; none if it does."""
    seen = run.fingerprint.get("image")
    passed = {rung.name for rung in run.rungs if rung.status == "passed"}
    faults = {
        f"is a run of {run.profile}": run.profile != profile.name,
        "ran in no image": run.image is None,
        f"ran in another image, {run.image and run.image.manifest}": run.image != image,
        f"says the fingerprint {seen}, the image's is {fingerprint}": seen not in (None, fingerprint),
        f"is {run.status}, not passed": run.status != "passed",
        f"did not climb to {NEEDED}": NEEDED not in passed,
    }
    return next((text for text, is_so in faults.items() if is_so), None)


def proven(profile: Profile, run: Run) -> Proof:
    """What the run shows, and what it leaves open."""
    return Proof(
        status="proven",
        statement=f"proven by run {run.id}: {len(run.rungs)} rungs passed in an image of this digest",
        record=RECORD,
        run=run.id,
        rungs=tuple(
            RungVerdict(name=rung.name, status=rung.status, seconds=rung.seconds, verified=rung.verified)
            for rung in run.rungs
        ),
        verified=tuple(f"{rung.name}: {rung.verified}" for rung in run.rungs if rung.verified),
        not_verified=tuple(_open(profile, run)),
    )


def unproven(why: str) -> Proof:
    """For an image that is handed on all the same."""
    return Proof(
        status="unproven",
        statement="UNPROVEN: no run record of this digest; handed on with --unproven",
        record=None,
        run=None,
        rungs=(),
        verified=(),
        not_verified=(f"everything: {why}", *(f"rung {name}" for name in ORDER)),
    )


def _open(profile: Profile, run: Run) -> Iterator[str]:
    there = {rung.name for rung in run.rungs}
    yield from (f"rung {name}: it was not climbed" for name in ORDER if name not in there)
    for name, real in (
        ("rollout", None),
        ("reward", None),
        ("model", "its own weights"),
        ("data", "its rows"),
    ):
        value = run.settings.get(name)
        if value == "mock":
            yield f"{name}: it was mocked"
        elif value == "tiny" and real:
            yield f"{name}: the run took the tiny one that verlock makes; {real} were not there"
    yield from run.unverified
    yield from differing(profile, command(run))
    if profile.hardware.accelerator == "cuda":
        yield "speed and memory on the GPU, and NCCL between GPUs, unless the rungs above name one"


def command(run: Run) -> Sequence[str]:
    """The words that the trainer of the highest rung was started with; empty if none was."""
    commands = [rung.details.get("command") for rung in run.rungs]
    words = next((words for words in reversed(commands) if isinstance(words, list)), [])
    return [str(word) for word in words]


def differing(profile: Profile, used: Sequence[str]) -> Iterator[str]:
    """Values of the profile that the run did not have: laid over for a CPU, or by the user."""
    run = {bare(key): value for key, value in read(used).items()}
    for key, wanted in profile.overrides().items():
        if bare(key) in run and run[bare(key)] != wanted:
            yield f"{bare(key)}: {wanted} on the target, {run[bare(key)]} in the run"
