"""The safe remedies: what can be made again, and what belongs to nobody any more. Nothing else is touched."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from harness.build.doctor.finding import CheckId, Finding
from harness.build.environment import ensure
from harness.console import Output
from harness.evidence import abandoned
from harness.profiles import Profile

Remedy = Callable[[Profile, Path, Output], str]


def _make(profile: Profile, _runs: Path, output: Output) -> str:
    ensure(profile, output=Output(as_json=True) if output.as_json else output)
    return f"made the environment of {profile.name} from its lock"


def _make_anew(profile: Profile, _runs: Path, output: Output) -> str:
    ensure(profile, output=Output(as_json=True) if output.as_json else output, fresh=True)
    return f"made the environment of {profile.name} anew from its lock"


def _tidy(_profile: Profile, runs: Path, _output: Output) -> str:
    ended = sum(map(len, abandoned.sweep_abandoned(runs).values()))
    removed = abandoned.sweep_ray_folders()
    return f"ended {ended} processes and removed {removed} Ray folders of killed climbs"


REMEDIES: dict[CheckId, Remedy] = {
    "environment.missing": _make,
    "environment.differs": _make_anew,
    "environment.forbidden": _make_anew,
    "environment.ray": _make_anew,
    "environment.torch": _make_anew,
    "leftovers": _tidy,
}


def apply(findings: Iterable[Finding], profile: Profile, *, runs: Path, output: Output) -> tuple[str, ...]:
    """Do each remedy once, and say what was done.

    Nothing is installed where a grave finding says that the machine cannot run it anyway.

    Raises what making an environment raises.
    """
    found = {one.id: one for one in findings}
    own = [one for one in found.values() if one.id in REMEDIES]
    hopeless = any(one.severity == "error" and one.id not in REMEDIES for one in found.values())
    wanted = {REMEDIES[one.id]: one for one in own if not hopeless or one.id == "leftovers"}
    return tuple(remedy(profile, runs, output) for remedy in wanted)
